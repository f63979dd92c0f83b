"""The texts of links, on large pages and on pages with wrong end tags."""

from __future__ import annotations

from krowlspider.catalogue.records.content import LINKS_MAX, links_of
from tests.support.tables import table

PAGE = "http://a.test/"
# Over the size from which the scanner's input is made smaller.
LARGE = b"<p>filling text" * 8000


def texts(html: bytes) -> list[tuple[str, str | None]]:
    return [(link.target.removeprefix(PAGE), link.text) for link in links_of(html, PAGE, None)]


@table("filling", [b"", LARGE])
@table(
    ("html", "found"),
    [
        (b"<a href=x>one <b>bold</b></a> rest", [("x", "one bold")]),
        (b"<A HREF=x>ONE</A> rest", [("x", "ONE")]),
        (b"<a href=x>one<p><a href=y>two</a> rest", [("x", "one"), ("y", "two")]),
        (b"</a>a</a><a href=x>one</a> b</a><a href=y>two</a>", [("x", "one"), ("y", "two")]),
        (b"<a name=here></a> text <a href=x>one</a>", [("x", "one")]),
        (b"<abbr>no</abbr><a href=x>one</a><article>no</article>", [("x", "one")]),
    ],
)
def test_a_link_has_its_own_text(
    html: bytes, found: list[tuple[str, str | None]], filling: bytes
) -> None:
    assert texts(html + b"<p>the end" + filling) == found


def test_links_that_stay_open_have_texts_of_the_size_of_the_page() -> None:
    """Each of them took the text of all that follow: of 4,000, some gigabytes and minutes."""
    html = b"<a href=first>" + b"<p>some text <a href=x>one</a>" * 4000
    found = texts(html)
    assert len(found) == LINKS_MAX
    assert found[:2] == [("first", "some text"), ("x", "one")]
    assert sum(len(text or "") for _, text in found) < len(html)


def test_links_in_comments_do_not_make_a_page_slow() -> None:
    html = b"<!--<a --></a><p>" * 60_000 + b"<a href=x>one</a>"
    assert texts(html) == []
