"""``python browse.py CHROMIUM FOLDER URL LINK ...``: opens a replayed page, and follows links by
their text.

Prints what a reader sees as a list of pages in JSON: ``title``, ``text``, and of the screenshot
``picture`` (a PNG in FOLDER), ``colours`` (how many the page has) and ``spots`` (the colour amid
each element that has an id). To it belongs ``elsewhere``: every address outside of 127.0.0.1 that
the browser has asked for since the last page.
"""

import io
import json
import sys
from pathlib import Path
from urllib.parse import urlsplit

from PIL import Image
from playwright.sync_api import Frame, Page, sync_playwright

# No name leads anywhere, nothing goes round them by a proxy, and nothing is asked for that no page
# has.
FLAGS = [
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--no-proxy-server",
    "--disable-quic",
]
# pywb shows the page in this frame, below its banner.
FRAME = "replay_iframe"
SHOTS_MAX = 50
SHOTS_EVERY = 200  # ms
SHOWN = f"""() => {{
    const shown = document.getElementById("{FRAME}").contentDocument;
    return shown && shown.URL !== "about:blank" && shown.readyState === "complete";
}}"""


def browse(chromium: str, folder: Path, url: str, links: list[str]) -> list[dict[str, object]]:
    seen = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1000, "height": 700})
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        answer = page.goto(url)
        assert answer is not None, url
        assert answer.ok, page.content()
        for number, link in enumerate([None, *links]):
            if link is not None:
                follow(page, link)
            page.wait_for_function(SHOWN)
            sight = look(page, replayed(page), folder / f"page-{number}.png")
            seen.append(sight | {"elsewhere": outside(asked)})
            asked.clear()
        browser.close()
    return seen


def follow(page: Page, link: str) -> None:
    with page.expect_event("framenavigated", lambda frame: frame.name == FRAME):
        replayed(page).get_by_text(link, exact=True).click()


def replayed(page: Page) -> Frame:
    frame = page.frame(FRAME)
    assert frame is not None, page.content()
    return frame


def look(page: Page, frame: Frame, path: Path) -> dict[str, object]:
    picture = settled(page, path)
    colours = shown(frame, picture).getcolors(picture.width * picture.height)
    spots = {}
    for element in frame.locator("[id]").all():
        if box := element.bounding_box():
            middle = (int(box["x"] + box["width"] / 2), int(box["y"] + box["height"] / 2))
            spots[element.get_attribute("id")] = picture.getpixel(middle)
    return {
        "title": frame.title(),
        "text": frame.inner_text("body"),
        "picture": str(path),
        "colours": len(colours),
        "spots": spots,
    }


def settled(page: Page, path: Path) -> Image.Image:
    """The first screenshot that equals the one before it: a browser paints a page in steps."""
    before = b""
    for _ in range(SHOTS_MAX):
        shot = page.screenshot(path=path, animations="disabled")
        if shot == before:
            return Image.open(io.BytesIO(shot)).convert("RGB")
        before = shot
        page.wait_for_timeout(SHOTS_EVERY)
    raise AssertionError(f"{page.url} changed between each two of {SHOTS_MAX} screenshots")


def shown(frame: Frame, picture: Image.Image) -> Image.Image:
    """The part of the screenshot that the page has."""
    box = frame.frame_element().bounding_box()
    assert box is not None
    left, top = int(box["x"]), int(box["y"])
    return picture.crop((left, top, left + int(box["width"]), top + int(box["height"])))


def outside(urls: list[str]) -> list[str]:
    return [url for url in urls if url.startswith("http") and urlsplit(url).hostname != "127.0.0.1"]


if __name__ == "__main__":
    print(json.dumps(browse(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4:])))
