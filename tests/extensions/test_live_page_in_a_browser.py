"""The buttons of the live page, in a browser."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from krowlspider.job.monitoring.access import CONTROL_TOKEN
from tests.extensions.test_live_page import SHEET, api, awaited, crawling
from tests.mockweb import MockWeb
from tests.support.browser import opened
from tests.support.crawls import anchors, crawl_of, page

if TYPE_CHECKING:
    from pathlib import Path
    from types import SimpleNamespace

    from tests.support.browser import Tab

SAID = 'document.getElementById("said").textContent'
# CSS pixels.
PHONE = 390
# The name of a host, without its last label.
LONG = ".".join(["a" * 63, "b" * 63, "c" * 63])
OF_HOST = 'document.getElementById("said-of-host").textContent'


async def click(tab: Tab, selector: str) -> None:
    await tab.run(f"document.querySelector({selector!r}).click()")


async def fill(tab: Tab, name: str, value: str) -> None:
    await tab.run(f"document.getElementById({name!r}).value = {value!r}")


async def check_width(tab: Tab, width: int) -> None:
    """Check that nothing is wider than the page, nor a table wider than its box. On a phone a table
    is: its box scrolls."""
    await tab.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=900,
        deviceScaleFactor=1,
        mobile=False,
    )
    boxes = "html, .scroll" if width > PHONE else "html"
    wide = """[...document.querySelectorAll(%r)]
        .filter((each) => each.scrollWidth > each.clientWidth).length"""
    assert await tab.run(wide % boxes) == 0


async def add_many(tab: Tab, host: str) -> None:
    await fill(tab, "many", f"http://{host}/many\n{LONG}.invalid\na b\n")
    await click(tab, "#importing button")
    await tab.wait(f'{SAID} === "2 new, 0 known already, 1 bad line"')
    bad = await tab.run('document.getElementById("bad-lines").textContent')
    assert bad == "line 3: whitespace inside"
    assert await tab.run('document.getElementById("many").value') == ""
    await tab.wait(f"hosts.some((each) => each.host.startsWith({LONG!r}))")


async def check_report(tab: Tab, report: Path) -> None:
    await tab.call("Page.navigate", url=report.as_uri())
    await tab.wait('document.querySelectorAll("tbody tr").length > 3')
    assert LONG in await tab.run("document.body.textContent")
    await check_width(tab, 1200)


async def forget(tab: Tab, crawl: SimpleNamespace, host: str) -> None:
    """A second press does it; a host that is being fetched is refused."""
    await click(tab, '#steering button[value="pause"]')
    await tab.wait(f'{OF_HOST}.includes("is paused")')
    while "A request" in api(crawl, f"host?name={host}")["why"]:
        await tab.run("new Promise((done) => setTimeout(done, 100))")
    await click(tab, "#forget")
    await tab.wait(f'{OF_HOST}.includes("Press Forget again")')
    assert "error" not in api(crawl, f"host?name={host}")
    await click(tab, "#forget")
    await tab.wait(f'{OF_HOST}.includes("forgotten, with ")')


async def pause_the_crawl(tab: Tab, crawl: SimpleNamespace, folder: Path) -> None:
    """It asks for the token, and again after a wrong one."""
    await click(tab, "#pause")
    await tab.wait('document.getElementById("asking").open')
    await tab.picture(folder / "token.png", 700, 500)
    await fill(tab, "token", "wrong")
    await click(tab, "#unlock button")
    # It is asked for again at once, and says why.
    await tab.wait('!document.getElementById("wrong").hidden')
    assert await tab.run('document.getElementById("asking").open')
    await tab.picture(folder / "wrong-token.png", 390, 700)
    assert api(crawl, "status")["paused"] == ""
    await click(tab, "#cancel")
    await tab.wait(f'{SAID}.startsWith("Nothing was changed")')
    await click(tab, "#pause")
    assert await tab.run('document.getElementById("wrong").hidden')
    await fill(tab, "token", (crawl.jobdir / CONTROL_TOKEN).read_text().strip())
    await click(tab, "#unlock button")
    # It comes back by the events.
    await tab.wait('document.getElementById("pause").textContent === "Resume the crawl"')
    assert api(crawl, "status")["paused"].startswith("paused by a person")
    await click(tab, "#pause")
    await tab.wait(f'{SAID} === "it goes on"')


async def use(tab: Tab, crawl: SimpleNamespace, folder: Path) -> None:
    host = crawl.web.url("a.test").split("/")[2]
    await tab.wait('document.querySelector("#tiles dd") !== null')
    await tab.wait("events.readyState === EventSource.OPEN")
    await pause_the_crawl(tab, crawl, folder)
    await tab.wait('document.querySelector("#hosts button") !== null')
    await click(tab, "#hosts button")
    await tab.wait('!document.getElementById("steering").hidden')
    # What it answers from now on comes by itself, with its delay.
    await tab.wait('document.querySelector("#answers li span:nth-child(2)") !== null')
    await tab.wait('document.querySelector("#delays svg") !== null')
    assert await tab.run('document.getElementById("ring").hidden')
    assert await tab.run('document.getElementById("reloading").hidden')
    for button, said, why in (
        ("block", "is blocked", "It is blocked by"),
        ("unblock", "each host after its delay", ""),
        ("pause", "is paused", "It is paused"),
        ("resume", "each host after its delay", ""),
        ("delay", "waits 7 s or more", ""),
    ):
        await fill(tab, "seconds", "7")
        await click(tab, f'#steering button[value="{button}"]')
        await tab.wait(f"{OF_HOST}.includes({said!r})")
        assert why in api(crawl, f"host?name={host}")["why"]
    await fill(tab, "added", f"http://{host}/new")
    await click(tab, "#add button")
    await tab.wait(f'{SAID} === "queued"')
    await add_many(tab, host)
    await tab.wait('document.querySelector("#charts .axis") !== null')
    axis = await tab.run('document.querySelector("#charts .axis").textContent')
    assert re.fullmatch(r"\d\d:\d\dat most [0-9.]+", axis), axis
    # The token is asked for once.
    assert not await tab.run('document.getElementById("asking").open')
    for width in (1200, PHONE):
        await check_width(tab, width)
    await tab.picture(folder / "page.png", 1200, 1600)
    await tab.picture(folder / "phone.png", PHONE, 1900)
    await tab.picture(folder / "dark.png", 1200, 1600, is_dark=True)
    # The wrong token is all that the browser complains of.
    assert all("401" in fault for fault in tab.faults), tab.faults
    await forget(tab, crawl, host)
    await asyncio.to_thread(crawl.end)
    report = crawl.jobdir / "reports" / "report.html"
    assert report.exists()
    await tab.wait(f'document.getElementById("state").textContent.includes("{report}")')
    await tab.picture(folder / "ended.png", 1200, 400)
    await check_report(tab, report)


async def reload(tab: Tab, crawl: SimpleNamespace, path: Path) -> None:
    sheets = 'document.getElementById("sheets").textContent'
    await tab.wait('document.querySelector("#tiles dd") !== null')
    assert not await tab.run('document.getElementById("reloading").hidden')
    await tab.wait(f'{sheets}.startsWith("1 sheet, ") && {sheets}.endsWith(" in force")')
    path.write_text(SHEET.format("deptj"))
    await click(tab, "#reloading button")
    await tab.wait('document.getElementById("asking").open')
    await fill(tab, "token", (crawl.jobdir / CONTROL_TOKEN).read_text().strip())
    await click(tab, "#unlock button")
    await tab.wait(f'{SAID}.startsWith("KROWL_POLICIES: read again")')
    await tab.wait(f'{sheets}.startsWith("not in force: ")')
    await tab.wait('document.getElementById("state").textContent.includes("deptj is no key")')
    await check_width(tab, PHONE)
    path.write_text(SHEET.format("depth"))
    await click(tab, "#reloading button")
    await tab.wait(f'{sheets}.endsWith(" in force")')
    assert await tab.run('document.getElementById("state").textContent') == ""
    assert tab.faults == []


@pytest.mark.slow
def test_a_button_of_the_page_reloads_the_sheets(tmp_path: Path) -> None:
    async def main(crawl: SimpleNamespace) -> None:
        async with opened(f"{crawl.url}/", tmp_path / "profile") as tab:
            await reload(tab, crawl, path)

    path = tmp_path / "policies.toml"
    path.write_text(SHEET.format("depth"))
    with crawling(tmp_path, KROWL_POLICIES=path) as crawl:
        asyncio.run(asyncio.wait_for(main(crawl), 120))


@pytest.mark.slow
def test_the_buttons_of_the_page_change_the_crawl(tmp_path: Path) -> None:
    async def main(crawl: SimpleNamespace) -> None:
        async with opened(f"{crawl.url}/", tmp_path / "profile") as tab:
            await use(tab, crawl, tmp_path)

    with crawling(tmp_path) as crawl:
        asyncio.run(asyncio.wait_for(main(crawl), 120))


# One host has more pages than the other, which is slower.
MANY = [
    page("/", anchors(*(f"/{number}" for number in range(105)))),
    page("^/.*$", "x"),
]
SLOW = '[[sheet]]\nname = "slow"\nmatch = ["b.test"]\ndelay = 8\nmax_pages = 1\n'


@pytest.mark.slow
def test_the_page_says_how_fresh_each_class_of_hosts_stays(tmp_path: Path) -> None:
    async def main(url: str) -> list[str]:
        async with opened(url, tmp_path / "profile") as tab:
            await tab.wait('document.getElementById("freshness")?.hidden === false')
            for width in (1200, PHONE):
                await check_width(tab, width)
                await tab.picture(tmp_path / f"forecast-{width}.png", width, 2500)
            assert tab.faults == []
            cells = """[...document.querySelectorAll("#forecast tr")].map(
                (row) => [...row.children].map((each) => each.textContent).join("|"))"""
            said = await tab.run('document.getElementById("forecast-said").textContent')
            head = await tab.run('document.getElementById("forecast-age").textContent')
            return [said, head, *await tab.run(cells)]

    policies = tmp_path / "policies.toml"
    policies.write_text(SLOW)
    settings = {
        "PROMETHEUS_ENABLED": 1,
        "PROMETHEUS_PORT": 0,
        "KROWL_POLICIES": policies,
        "KROWL_RECRAWL": "off",
    }
    with MockWeb(spec=MANY) as web:
        seeds = [web.url("a.test"), web.url("b.test")]
        crawl_of(web, tmp_path, seeds, settings=settings).run()
        settings["KROWL_RECRAWL"] = "continuous"
        run = crawl_of(web, tmp_path, seeds, settings=settings).start()
        address = awaited(run, r"page (http://127.0.0.1:\d+/)")[1]
        said, head, *rows = asyncio.run(asyncio.wait_for(main(address), 60))
        run.interrupt()
    assert said.startswith("90 % of the pages outdated for 1 d at most: ")
    assert head == "outdated for 1 d at most"
    assert [row.split("|")[:4] for row in rows] == [
        ["up to 1 s", "up to 10,000", "1", "106"],
        ["up to 30 s", "up to 100", "1", "1"],
        ["all", "", "2", "107"],
    ]
