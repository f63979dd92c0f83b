"""The main part of pages, built as large sites build theirs, and the lines that are taken out."""

from __future__ import annotations

import pytest

from krowlspider.corpus.text.document import Reading, document, with_markdown
from krowlspider.corpus.text.part import is_forum, without_noise
from krowlspider.corpus.warc_pages import CapturedPage
from tests.corpus.warcs import prose
from tests.support.tables import table

ARTICLE = [prose(number, 60) for number in range(6)]
OTHER = [prose(number, 30) for number in range(10, 18)]
URL = "http://news.example/2026/a"


def paragraphs(texts: list[str]) -> str:
    return "".join(f"<p>{text}</p>" for text in texts)


def text_of(body: str, url: str = URL, title: str = "Bridge opens - The News") -> str:
    html = f"<html><head><title>{title}</title></head><body>{body}</body></html>"
    return document(CapturedPage(url, "", "", "", [], html.encode()), Reading()).text


def with_comments(name: str) -> str:
    comments = "".join(f"<li><b>Ann</b> {paragraphs([text])}</li>" for text in OTHER)
    return f"<article>{paragraphs(ARTICLE)}</article><div {name}><ul>{comments}</ul></div>"


TEASERS = "".join(f"<div class=item><h3>{t[:40]}</h3><p>{t}</p></div>" for t in OTHER[:3])
# Pages whose text is the article alone, all of it.
PAGES = {
    "in a wrapper called newsletter": f"<div class='newsletter-post post'><div class=x>"
    f"{paragraphs(ARTICLE)}</div></div>",
    "in a wrapper called subscribe": f"<main class=subscribe-only>{paragraphs(ARTICLE)}</main>",
    "in widgets": f"<div class=elementor-widget>{paragraphs(ARTICLE)}</div>",
    "beside teasers": f"<div class=c1>{paragraphs(ARTICLE)}</div><div class=c2>{TEASERS}</div>",
    "beside a grid of links": f"<div class=s>{paragraphs(ARTICLE)}</div><div class=g>"
    + "".join(f"<a href=/{n}><div><p>{t}</p></div></a>" for n, t in enumerate(OTHER * 3))
    + "</div>",
    "with the heading, beside longer ones": f"<article><h1>Bridge opens</h1>"
    f"{paragraphs(ARTICLE)}</article>"
    + "".join(f"<article><h2>More</h2>{paragraphs(OTHER[n : n + 3])}</article>" for n in range(5)),
    "before comments": with_comments("class=comments"),
    "before longer comments": with_comments("id=Comments"),
    "between line breaks": f"<div id=a>{'<br><br>'.join(ARTICLE)}</div><div id=b>"
    f"<p>{OTHER[0]}</p></div>",
    "with captions": f"<div>{paragraphs(ARTICLE[:3])}<figure><img src=a.jpg><figcaption>A bridge."
    f"</figcaption></figure><i class=photo-caption>A river</i>{paragraphs(ARTICLE[3:])}</div>",
    "with links to other pages": f"<div>{paragraphs(ARTICLE[:3])}<p><a href=/b>Also in the news: a"
    f" river</a></p><p><strong><a href=/c>More on bridges</a></strong></p>"
    f"{paragraphs(ARTICLE[3:])}<div class='related-posts'><ul><li><a href=/d>River</a></ul></div>"
    "</div>",
    "with hidden parts": f"<div>{paragraphs(ARTICLE[:3])}<p hidden>Hidden</p><div"
    f" style='display:none'>None</div><nav>Menu</nav><button>Press</button><aside>Beside</aside>"
    f"{paragraphs(ARTICLE[3:])}</div>",
    "with notices": f"<div>{paragraphs(ARTICLE[:3])}<p>Advertisement</p><p>\xa0</p>"
    f"<p>Image 1 of 5</p><p>Post a comment</p><p>12 Comments</p><p>Read more:</p>"
    f"<p>© 2026 The News</p>{paragraphs(ARTICLE[3:])}</div>",
}


@table("body", PAGES.values())
def test_the_article_is_the_text(body: str) -> None:
    assert [line for line in text_of(body).split("\n") if line] == ARTICLE


def test_text_outside_paragraphs_is_kept() -> None:
    """Nothing is known of such a page: one paragraph in its footer is not its main part."""
    cells = "".join(f"<div>{text}</div>" for text in ARTICLE)
    found = text_of(f"<main>{cells}</main><div class=last><p>{prose(9, 60)}</p></div>")
    assert all(text in found for text in ARTICLE)


def test_captions_alone_are_no_main_part() -> None:
    """The article is in elements that are no paragraphs, the captions of its slides are."""
    slides = "".join(
        f"<li><figure><figcaption><p>{text}</p></figcaption></figure>" for text in OTHER + OTHER
    )
    cells = "".join(f"<div>{text}</div>" for text in ARTICLE)
    body = f"<article><h1>Bridge opens</h1><ul class=slides>{slides}</ul>{cells}</article>"
    found = text_of(f"<main>{body}</main>")
    assert all(text in found for text in ARTICLE)
    assert "Bridge opens" not in found
    html = f"<title>Bridge opens - The News</title><body>{body}"
    page = CapturedPage(URL, "", "", "", [], html.encode())
    in_markdown = with_markdown(document(page, Reading(markdown=True))).text
    assert all(text in in_markdown for text in ARTICLE)


@pytest.mark.parametrize("url", ["http://forum.example/a", "http://a.example/threads/bridge.12/"])
def test_comments_of_a_forum_are_its_text(url: str) -> None:
    found = text_of(with_comments("class=comments"), url)
    assert all(text in found for text in ARTICLE + OTHER)


@table(
    ("url", "html", "expected"),
    [
        ("https://forums.example.org/a", "", True),
        ("https://community.example.org/t/a-bridge/123", "", True),
        ("https://a.example/viewtopic.php?t=1", "", True),
        ("https://a.example/questions/12/why", "", True),
        ("https://a.example/r/b/comments/12/why", "", True),
        ("https://a.example/a", '{"@type": "DiscussionForumPosting"}', True),
        ("https://a.example/a", '<div itemtype="https://schema.org/QAPage">', True),
        ("https://performance.example/2026/open-thread", "", False),
        ("https://a.example/topics", "", False),
        ("https://a.example/community/a", "", False),
    ],
)
def test_discussions_are_known(url: str, html: str, expected: bool) -> None:
    assert is_forum(url, html) == expected


@table(
    ("title", "heading", "is_kept"),
    [
        ("Bridge opens - The News", "Bridge  Opens", False),
        ("Bridge opens", "Bridge opens", False),
        ("The News", "Bridge opens", True),
        ("Bridge openspace", "Bridge opens", True),
        ("", "Bridge opens", True),
    ],
)
@table("text", [ARTICLE, ["Few words."]])
def test_a_heading_is_not_repeated(
    title: str, heading: str, is_kept: bool, text: list[str]
) -> None:
    """It is left out if the title, a field of the record, has it."""
    found = text_of(f"<h1>{heading}</h1><div>{paragraphs(text)}</div>", title=title)
    assert (" ".join(heading.split()) in " ".join(found.split())) == is_kept
    assert text[0] in found


def test_text_without_scripts_is_found() -> None:
    """Some pages have their text in a noscript element alone."""
    found = text_of(f"<div id=app></div><noscript>{paragraphs(ARTICLE)}</noscript>")
    assert all(text in found for text in ARTICLE)


@pytest.mark.parametrize("body", ["", "<p>", "<p>a", "<svg><p>", "<frameset><frame>", "\x00"])
def test_pages_of_nearly_nothing_have_some_text(body: str) -> None:
    assert text_of(body) in {"", "a", "\ufffd"}


@table(
    ("text", "expected"),
    [
        ("One\n\nADVERTISEMENT\n\nTwo", "One\n\nTwo"),
        ("One\n  • Read more\nTwo", "One\nTwo"),
        ("One\n\xa0\u200b\nTwo", "One\n\nTwo"),
        ("One\n\xa0\n\n\xa0\nTwo", "One\n\nTwo"),
        ("One\nRead more of it\n3 comments on this", "One\nRead more of it\n3 comments on this"),
        ("Eine\nAnzeige\nZwei\nReklama", "Eine\nZwei"),
        ("Nothing\xa0here", "Nothing\xa0here"),
        ("", ""),
    ],
)
def test_notices_are_taken_out(text: str, expected: str) -> None:
    assert without_noise(text) == expected
