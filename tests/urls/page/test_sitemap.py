"""Reading of sitemaps, in every form and with the usual mistakes."""

from __future__ import annotations

import gzip
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.urls.canonical import normalise
from krowlspider.urls.page.sitemap import (
    BYTES_MAX,
    ELEMENTS_MAX,
    IDLE_MAX,
    MEMBERS_MAX,
    STEP,
    URLS_MAX,
    Sitemap,
)
from krowlspider.urls.page.sitemap_xml import NESTING_MAX, PLACE_MAX, TOKEN_MAX
from tests.fetch.emptiness import NOTHING
from tests.support.tables import table
from tests.support.work import seconds

NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"
ONE, TWO = "https://example.com/1", "https://example.com/2"


@dataclass
class Read:
    """A sitemap that was read to its end."""

    sitemap: Sitemap
    urls: list[str]
    largest: int


def read(body: str | bytes, url: str | None = None) -> Read:
    sitemap = Sitemap(url)
    steps = list(sitemap.read(body if isinstance(body, bytes) else body.encode()))
    return Read(sitemap, [url for step in steps for url in step], max(map(len, steps), default=0))


def urls(body: str | bytes) -> list[str]:
    """Return the URLs of a valid sitemap."""
    found = read(body)
    assert (found.sitemap.error, found.sitemap.truncated) == (None, False)
    assert found.sitemap.found == len(found.urls) + len(found.sitemap.children)
    return found.urls


def urlset(*places: str, head: str = "") -> str:
    entries = "".join(f"<url><loc>{place}</loc></url>" for place in places)
    return f"{head}<urlset>{entries}</urlset>"


@table(
    ("kind", "body"),
    [
        ("text", f"{ONE}\n{TWO}\n"),
        ("text", f"{ONE}\r\n\r\n  {TWO}  "),
        ("text", f"{ONE}\r{TWO}\r"),
        (
            "rss",
            (
                f"<rss><channel><link>x</link><item><link>{ONE}</link></item>"
                f"<item><title>t</title><link> {TWO}</link></item></channel></rss>"
            ),
        ),
        (
            "rdf",
            (
                f"<rdf:RDF xmlns:rdf='r'><item><link>{ONE}</link></item>"
                f"<item><link>{TWO}</link></item></rdf:RDF>"
            ),
        ),
        (
            "feed",
            (
                f"<feed xmlns='a'><link href='http://x/'/><entry><link href='{ONE}'/>"
                f"<link rel='edit' href='http://x/'/></entry>"
                f"<entry><link rel='alternate' href='{TWO}'/></entry></feed>"
            ),
        ),
        ("urlset", f"<URLSET><Url><LOC>{ONE}</LOC></Url><url><Loc>{TWO}</Loc></url></URLSET>"),
        ("urlset", urlset(f"<![CDATA[{ONE}]]>", f"<!-- c -->{TWO}<b></b>")),
        ("urlset", urlset(ONE, TWO, head="<!DOCTYPE urlset SYSTEM 'http://x/y.dtd'>")),
    ],
)
def test_every_form_is_read(kind: str, body: str) -> None:
    assert urls(body) == [ONE, TWO]
    assert read(body).sitemap.kind == kind


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1", "windows-1252"])
def test_the_declared_encoding_holds(encoding: str) -> None:
    body = urlset("http://a/ü", head=f"<?xml version='1.0' encoding='{encoding}'?>")
    assert urls(body.encode(encoding)) == ["http://a/%C3%BC"]


def test_images_videos_and_alternates_are_no_pages() -> None:
    extras = (
        "<image:image><image:loc>http://x/i.png</image:loc></image:image>"
        "<video:video><video:player_loc>http://x/v</video:player_loc></video:video>"
        "<xhtml:link rel='alternate' hreflang='de' href='http://x/de'/>"
    )
    body = urlset(ONE).replace("</url>", f"{extras}</url>", 1)
    assert urls(body) == [ONE]


def test_location_that_is_no_http_url_is_counted() -> None:
    found = read(urlset(ONE, "/2", "", "ftp://x/", "http://u:p@x/", "two", TWO))
    assert found.urls == [ONE, TWO]
    assert found.sitemap.invalid == 5


# --- feeds, and entries without ``loc`` ---

FEED_URL = "https://example.com/dir/feed?x"


@table("broken", [False, True])
@table(
    ("item", "found"),
    [
        (f"<guid>{ONE}</guid>", [ONE]),
        (f"<guid isPermaLink='true'> {ONE} </guid>", [ONE]),
        (f"<guid ispermalink=' TRUE '>{ONE}</guid>", [ONE]),
        (f"<guid isPermaLink='false'>{ONE}</guid>", []),
        (f"<guid isPermaLink='False'>{ONE}</guid>", []),
        (f"<guid isPermaLink='no'>{ONE}</guid>", [ONE]),
        ("<guid>7bd204c6-1655-4c27</guid>", []),
        ("<guid>urn:uuid:7bd204c6</guid><guid/>", []),
        ("<guid>tag:example.com,2024:1</guid>", []),
        # A relative guid is no URL of a page, though a relative link is.
        ("<guid>1</guid>", []),
        (f"<guid>{TWO}</guid><link>{ONE}</link>", [ONE]),
        (f"<link>{ONE}</link><guid>{TWO}</guid>", [ONE]),
        (f"<guid>{ONE}</guid><link> </link>", [ONE]),
        (f"<link/><guid><![CDATA[{ONE}]]></guid>", [ONE]),
        (f"<atom:link href='{TWO}' rel='self'/><guid>{ONE}</guid>", [ONE]),
        (f"<guid>{ONE}?a&amp;b</guid>", [f"{ONE}?a&b"]),
        (f"<x:guid>{ONE}</x:guid>", [ONE]),
        (f"<source><guid>{ONE}</guid></source>", []),
    ],
)
def test_guid_is_the_page_of_an_item_without_link(
    item: str, found: list[str], broken: bool
) -> None:
    body = (
        f"<rss><channel><guid>{TWO}</guid><image><url>http://x/i.png</url></image>"
        f"{'<b>&</b>' * broken}<item>{item}</item><item><title>t</title></item></channel></rss>"
    )
    read_body = read(body, FEED_URL)
    assert read_body.urls == found
    assert read_body.sitemap.invalid == 0
    assert (read_body.sitemap.error is None) is not broken


def test_guid_of_an_item_without_end_counts() -> None:
    item = f"<item><guid>{ONE}</guid>"
    assert read(f"<rss>&{item}<item><guid>{TWO}</guid>").urls == [ONE, TWO]
    assert read(f"<rss>{item}").urls == [ONE]


@table("broken", [False, True])
@table(
    ("feed", "found"),
    [
        ("<feed><entry><link href='1'/></entry>", ["/dir/1"]),
        ("<feed><entry><link href=' /1 '/></entry>", ["/1"]),
        ("<feed xml:base='/b/'>{}<entry><link href='1'/></entry>", ["/b/1"]),
        ("<feed xml:base='/b/'>{}<entry xml:base='c/'><link href='1'/></entry>", ["/b/c/1"]),
        (
            (
                "<feed xml:base='/b/'>{}<entry xml:base='c/'><link href='1'/></entry>"
                "<entry><link href='2'/></entry>"
            ),
            ["/b/c/1", "/b/2"],
        ),
        (
            (
                "<feed xml:base='/b/'><entry xml:base='c/'>{}<link href='1'/></entry>"
                "<entry><link href='2'/></entry>"
            ),
            ["/b/c/1", "/b/2"],
        ),
        (
            "<feed>{}<entry><link xml:base='/c/' href='1'/><link href='2'/></entry>",
            ["/c/1", "/dir/2"],
        ),
        ("<feed xml:base='http://x/y/z'>{}<entry><link href='1'/></entry>", ["http://x/y/1"]),
        ("<feed xml:base='//x'>{}<entry><link href='?1'/></entry>", ["https://x/?1"]),
        # A base that is no http(s) URL, or too long, is none.
        ("<feed xml:base='urn:x'>{}<entry><link href='1'/></entry>", ["/dir/1"]),
        (f"<feed xml:base='/{'b' * 3000}/'>{{}}<entry><link href='1'/></entry>", ["/dir/1"]),
        ("<feed base='/b/'>{}<entry><link href='1'/></entry>", ["/dir/1"]),
        ("<feed>{}<entry><link href='#a'/></entry>", ["/dir/feed?x"]),
        ("<feed>{}<entry><link href='mailto:a'/></entry>", []),
        ("<feed>{}<entry><link href=''/><link/></entry>", []),
        ("<rss><channel xml:base='/b/'>{}<item><link>1</link></item>", ["/b/1"]),
        ("<rss>{}<channel xml:base='/b/'><item><link>1</link></item>", ["/b/1"]),
        ("<rss><channel>{}<item xml:base='/b/'><link>1</link></item>", ["/b/1"]),
        ("<rss><channel>{}<item><link>//x/1</link></item>", ["https://x/1"]),
        ("<rss><channel>{}<item><link>no link</link></item>", []),
        # The protocol of sitemaps has absolute URLs only.
        ("<urlset xml:base='/b/'>{}<url><loc>1</loc></url>", []),
    ],
)
def test_links_of_feeds_are_relative_to_their_base(
    feed: str, found: list[str], broken: bool
) -> None:
    """Within any element that has ``xml:base``, and after an error of the XML too."""
    root = feed[1 : feed.index(" " if " " in feed[: feed.index(">")] else ">")]
    closes = "</channel>" if "<channel" in feed else ""
    closes += "</entry>" if feed.count("<entry") > feed.count("</entry") else ""
    body = feed.format("<b>&</b>" if broken else "") + f"{closes}</{root}>"
    read_body = read(body, FEED_URL)
    expected = [f"https://example.com{path}" if path[0] == "/" else path for path in found]
    assert read_body.urls == expected


def test_relative_links_without_a_known_base_are_invalid() -> None:
    found = read(
        "<feed><entry><link href='1'/></entry><entry><link href='http://a/'/></entry></feed>"
    )
    assert (found.urls, found.sitemap.invalid) == (["http://a/"], 1)


@table("broken", [False, True])
@table(
    ("body", "pages", "children"),
    [
        (f"<sitemapindex>{{}}<sitemap>\n{ONE}?a&amp;b \n</sitemap>", [], [f"{ONE}?a&b"]),
        (f"<sitemapindex>{{}}<sitemap><![CDATA[ {ONE} ]]></sitemap>", [], [ONE]),
        (f"<sitemapindex>{{}}<sitemap>{ONE}<lastmod>2024</lastmod></sitemap>", [], [ONE]),
        (f"<sitemapindex>{{}}<sitemap>{ONE}<loc>{TWO}</loc></sitemap>", [], [ONE, TWO]),
        (f"<sitemapindex>{{}}<sitemap>one<loc>{TWO}</loc>two</sitemap>", [], [TWO]),
        (f"<sitemapindex>{{}}<sitemap><loc>{ONE}</loc><loc>{TWO}</loc></sitemap>", [], [ONE, TWO]),
        (f"<sitemapindex>{{}}<loc>{ONE}</loc><loc>{TWO}</loc>", [], [ONE, TWO]),
        ("<sitemapindex>{}<sitemap>\n <lastmod>2024</lastmod>\n</sitemap><sitemap/>", [], []),
        ("<sitemapindex>{}<sitemap>/relative</sitemap>", [], []),
        (f"<sitemapindex>{{}}<s:sitemap>{ONE}</s:sitemap>", [], [ONE]),
        (f"<urlset>{{}}<url>\n{ONE}\n</url><url><lastmod>2024</lastmod></url>", [ONE], []),
        (f"<urlset>{{}}<loc>{ONE}</loc><url><loc>{TWO}</loc></url>", [ONE, TWO], []),
        # Each entry is what it says, whatever the root is.
        (f"<urlset>{{}}<sitemap><loc>{ONE}</loc></sitemap>", [], [ONE]),
        (f"<sitemapindex>{{}}<url><loc>{ONE}</loc></url>", [ONE], []),
        (f"<rss>{{}}<image><url>{ONE}</url></image>", [], []),
    ],
)
def test_entries_name_their_url_with_or_without_loc(
    body: str, pages: list[str], children: list[str], broken: bool
) -> None:
    root = body[1 : body.index(">")]
    found = read(body.format("<b>&</b>" if broken else "") + f"</{root}>")
    assert (found.urls, found.sitemap.children, found.sitemap.invalid) == (pages, children, 0)
    assert (found.sitemap.error is None) is not broken


# --- gzip ---


def test_gzip_of_one_member_or_many_is_read() -> None:
    body = urlset(ONE, TWO).encode()
    assert urls(gzip.compress(body)) == [ONE, TWO]
    assert urls(gzip.compress(body[:30]) + gzip.compress(body[30:]) + b"\0" * 9) == [ONE, TWO]


def test_broken_gzip_gives_the_urls_before() -> None:
    # Incompressible paths, so that half of the bytes are half of the URLs.
    places = [f"http://a/{hash_of(number)}" for number in range(4000)]
    packed = gzip.compress("\n".join(places).encode())
    cut = read(packed[: len(packed) // 2])
    assert cut.sitemap.error == "the gzip data is cut short"
    assert 1000 < len(cut.urls) < 3000
    assert cut.urls == places[: len(cut.urls)]
    broken = read(packed[:-8] + bytes(8))
    assert (broken.sitemap.error or "").startswith("broken gzip data: ")
    assert len(broken.urls) > 3000


def hash_of(number: int) -> str:
    import hashlib  # noqa: PLC0415

    return hashlib.sha256(str(number).encode()).hexdigest()


# --- limits ---


def test_at_most_50_000_urls_are_read_in_small_steps() -> None:
    whole = read(urlset(*(f"http://a/{number}" for number in range(URLS_MAX))))
    assert (len(whole.urls), whole.sitemap.truncated) == (URLS_MAX, False)
    assert whole.largest <= STEP // len("<url><loc>http://a/1</loc></url>")
    over = read("".join(f"http://a/{number}\n" for number in range(URLS_MAX + 1)))
    assert over.urls == [f"http://a/{number}" for number in range(URLS_MAX)]
    assert over.sitemap.truncated


def test_invalid_locations_count_towards_the_limit() -> None:
    found = read("http://a/\n" + "x\n" * URLS_MAX)
    assert (len(found.urls), found.sitemap.invalid) == (1, URLS_MAX - 1)
    assert found.sitemap.truncated


@pytest.mark.parametrize("filling", [" ", "\n"])
def test_at_most_50_mb_of_a_bomb_are_unpacked(filling: str) -> None:
    start = urlset(ONE)[: -len("</urlset>")] if filling == " " else ONE + "\n"
    size = BYTES_MAX if filling == " " else ELEMENTS_MAX
    bomb = gzip.compress((start + filling * size + "</urlset>").encode(), 1)
    found = read(bomb)
    assert found.urls == [ONE]
    assert found.sitemap.truncated


@pytest.mark.parametrize(
    ("bomb", "why"),
    [
        ("<urlset>" + "<a>" * NESTING_MAX, "within one another"),
        ("<urlset><!--" + "x" * (TOKEN_MAX + STEP), "tag or comment"),
        ("<urlset><a b='" + "x" * (TOKEN_MAX + STEP), "tag or comment"),
        ("http://a/\nhttp://a/" + "x" * (TOKEN_MAX + STEP), "line without end"),
    ],
)
def test_endless_tokens_stop_the_reading(bomb: str, why: str) -> None:
    assert why in (read(bomb).sitemap.error or "")


@pytest.mark.slow
def test_number_of_elements_is_bounded() -> None:
    found = read("<urlset>" + "<a/>" * ELEMENTS_MAX + f"<url><loc>{ONE}</loc></url></urlset>")
    assert (found.urls, found.sitemap.truncated) == ([], True)


@pytest.mark.parametrize("packed", [False, True])
def test_size_is_the_unpacked_bytes_read(packed: bool) -> None:
    body = urlset(ONE, head=" " * 3 * STEP).encode()
    assert read(gzip.compress(body) if packed else body).sitemap.size == len(body)
    cut = read(gzip.compress(body)[:-40]).sitemap
    assert cut.error is not None
    assert 0 < cut.size < len(body)


def test_size_of_a_bomb_is_what_was_unpacked() -> None:
    bomb = gzip.compress(b"<urlset>" + b" " * 2 * BYTES_MAX, 1)
    assert BYTES_MAX - STEP < read(bomb).sitemap.size <= BYTES_MAX


def test_number_of_gzip_members_is_bounded() -> None:
    packed = gzip.compress(b"\n")
    assert urls(gzip.compress(ONE.encode() + b"\n") + packed * 2 * MEMBERS_MAX) == [ONE]


@pytest.mark.parametrize("length", [PLACE_MAX, 7 * STEP])
def test_location_too_long_to_be_parsed_is_invalid(length: int) -> None:
    long = "http://a/" + "x" * (length - len("http://a/"))
    for body in (urlset(long, ONE), f"{ONE}\n{long}\n"):
        found = read(body)
        assert (found.urls, found.sitemap.invalid) == ([ONE], 1)


# --- what is broken, or hostile ---


@pytest.mark.parametrize("end", ["", "</url>", "<url><", "&x;", "\0", "<url><loc>http://a/"])
def test_broken_xml_gives_the_urls_before(end: str) -> None:
    found = read(urlset(ONE, TWO)[: -len("</urlset>")] + end)
    assert found.urls == [ONE, TWO]
    assert (found.sitemap.error or "").startswith("broken XML: ")


@table(
    "broken",
    [
        f"<url><loc>{ONE}?x=1&y=2</loc></url>",
        f"<url><loc>{ONE}?x=1&copy=2&amp;y</loc></url>",
        f"<url><loc>{ONE}?<![CDATA[]]>&</loc></url>",
        f"<url><loc>{ONE}</loc><lastmod>1 & 2</lastmod></url>",
        "<url><loc><b>&</b></loc></url>",
        f"<url><loc>{ONE}",
        f"</urlset><?xml version='1.0'?><urlset><url><loc>{ONE}</loc></url>",
        "<url></loc><image:image><image:loc>http://x/i.png</image:loc></image:image></url>",
        "</url>",
        "<!-- -- -->",
        "\0\xff",
    ],
)
@table("padding", [0, STEP - 120, STEP - 105, STEP - 90])
def test_broken_xml_loses_no_later_url(broken: str, padding: int) -> None:
    """Nor the one with the error, if only an & is not escaped."""
    head = f"<?xml version='1.0'?>{' ' * padding}<urlset><url><loc>http://a/?a&amp;b</loc></url>"
    tail = f"<url ><s:loc a='b'>\n{TWO}&amp;c&#x64;</s:loc></url><url><loc><![CDATA[{TWO}&amp;]]>"
    found = read(head + broken + tail + "</loc></url></urlset>")
    assert (found.sitemap.error or "").startswith("broken XML: ")
    assert found.urls[0] == "http://a/?a&b"
    assert found.urls[-2:] == [f"{TWO}&cd", f"{TWO}&amp;"]
    assert "http://x/i.png" not in found.urls
    assert found.sitemap.found == len(found.urls) == len(set(found.urls))
    if "y" in broken:
        assert found.urls[1] == broken[len("<url><loc>") : -len("</loc></url>")].replace(
            "&amp;", "&"
        )


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("rss", "<rss><link>http://x/</link><item>&<link>{}</link></item><item><link>{}</link>"),
        (
            "feed",
            (
                "<feed>&<link href='http://x/'/><entry><link rel='edit' href='http://x/'/>"
                "<link href='{}'/></entry><entry><link rel='alternate' href=\"{}\"/>"
            ),
        ),
        ("urlset", "<urlset>&<url><LOC>{}</LOC></url><s:url><s:loc>{}</s:loc>"),
    ],
)
def test_every_form_of_broken_xml_is_read(kind: str, body: str) -> None:
    found = read(body.format(ONE, TWO))
    assert (found.sitemap.kind, found.urls) == (kind, [ONE, TWO])


def test_broken_index_names_its_later_sitemaps() -> None:
    entries = "".join(f"<sitemap><loc>{url}?a&b=1</loc></sitemap>" for url in (ONE, TWO))
    found = read(f"<sitemapindex>{entries}</sitemapindex>")
    assert found.sitemap.children == [f"{ONE}?a&b=1", f"{TWO}?a&b=1"]
    assert found.urls == []


def test_broken_xml_keeps_its_encoding() -> None:
    body = urlset("http://a/?ü&", "http://a/ü", head="<?xml version='1.0' encoding='latin-1'?>")
    found = read(body.encode("latin-1"))
    assert found.urls == ["http://a/?%C3%BC&", "http://a/%C3%BC"]


def test_broken_xml_keeps_the_limits() -> None:
    head = "<urlset>&"
    over = read(head + urlset(*(f"http://a/{number}" for number in range(URLS_MAX + 1))))
    assert (len(over.urls), over.sitemap.truncated) == (URLS_MAX, True)
    assert over.largest <= STEP // len("<url><loc>http://a/1</loc></url>")
    long = "x" * (TOKEN_MAX + STEP)
    for endless in (f"<url><loc>{long}", f"<{long}", f"<!--{long}"):
        assert read(head + endless + urlset(ONE)).urls == [ONE]


@table(
    "filling",
    [
        *("<", "<a", "<a>", "</a>", "<url>", "<url><loc>", "&", "<entry><link href='"),
        *("<item><guid>", "<link xml:base='/a/' href='b'/>", "<entry xml:base='a/'>", "<sitemap>a"),
        *("<url xml:base=", "<item><guid>http://a/<item>", "<entry><link href='b'/>"),
    ],
)
def test_work_after_broken_xml_is_bounded(filling: str) -> None:
    body = ("<urlset>&" + filling * (250_000 // len(filling))).encode()
    # 5 µs a byte, as of all decoders.
    most = 5e-6 * len(body)
    assert seconds(lambda: read(body), enough=most) < most


@pytest.mark.parametrize(
    "filling",
    [
        "<entry><link href='b'/></entry>",
        "<entry xml:base='a/'><link href='b'/></entry>",
        "<entry xml:base='a/'/>",
        f"<entry xml:base='{'a' * 20_000}'/>",
        "<entry xml:base='http://" + "é" * 20_000 + "/'/>",
        "<item><guid>http://a/</guid></item>",
        "<sitemap>a</sitemap>",
    ],
)
def test_work_of_bases_and_entries_is_bounded(filling: str) -> None:
    """Each link of a feed is joined to a base as long as one may be."""
    head = f"<feed xml:base='/{'b' * 2000}/'>"
    body = (head + filling * (250_000 // len(filling)) + "</feed>").encode()
    # 5 µs a byte, as of all decoders.
    most = 5e-6 * len(body)
    assert seconds(lambda: read(body, FEED_URL), enough=most) < most


@pytest.mark.parametrize(
    "definitions",
    [
        "<!ENTITY a 'aaaaaaaa'><!ENTITY b '&a;&a;&a;&a;'>",
        "<!ENTITY b SYSTEM 'file:///etc/passwd'>",
        "<!ENTITY % b SYSTEM 'http://127.0.0.1/'> %b;",
    ],
)
def test_a_document_that_defines_entities_is_refused(definitions: str) -> None:
    found = read(urlset("http://a/&b;", head=f"<!DOCTYPE urlset [{definitions}]>"))
    assert (found.urls, found.sitemap.kind) == ([], None)
    assert found.sitemap.error == "its document type defines entities"


@table(
    "body",
    [
        "",
        " \n",
        "<!DOCTYPE html><html><body>404",
        "<html/>",
        "<loc>http://a/</loc>",
        "Not found\nhttp://a/",
        "\x89PNG\r\n",
        "<svg xmlns='x'/>",
        "\x1f\x8b",
    ],
)
def test_other_documents_are_no_sitemaps(body: str) -> None:
    found = read(body.encode("latin-1"))
    assert (found.urls, found.sitemap.kind, found.sitemap.found) == ([], None, 0)
    assert found.sitemap.error


@pytest.mark.parametrize("encoding", ["no-such", "shift_jis", "hex", "utf-7"])
def test_unknown_encoding_is_an_error(encoding: str) -> None:
    found = read(urlset(ONE, head=f"<?xml version='1.0' encoding='{encoding}'?>"))
    assert found.sitemap.error


PARTS = st.sampled_from(
    [
        *("<urlset>", "</urlset>", "<url>", "</url>", "<loc>", "</loc>", "&", "<sitemap>"),
        *("</sitemap>", "<item>", "<link>", "</link>", "<entry>", "<![CDATA[", "]]>", "<!--"),
        *("-->", "&amp;", "&#0;", "\0", "\ufeff", "\n", "http://a/", "x"),
    ]
)


@given(st.lists(PARTS).map("".join), st.booleans())
def test_any_markup_gives_normalised_urls(text: str, packed: bool) -> None:
    body = gzip.compress(text.encode()) if packed else text.encode()
    found = read(body)
    for url in (*found.urls, *found.sitemap.children):
        assert normalise(url) == url


@given(st.lists(st.integers(0, 9**9), unique=True, max_size=30), st.integers(0, STEP))
def test_where_the_steps_end_changes_nothing(numbers: list[int], padding: int) -> None:
    places = [f"http://a/{number}?a=1&amp;b=2" for number in numbers]
    body = urlset(*places, head="<?xml version='1.0'?>" + " " * (STEP - padding))
    assert urls(body) == [place.replace("&amp;", "&") for place in places]


@pytest.mark.parametrize("name", ["fixed blocks", "dynamic blocks"])
def test_gzip_of_empty_blocks_ends_early_in_short_steps(name: str) -> None:
    """In one step it would take a second for each ten megabytes of the body."""
    head = gzip.compress(b"")[:10]
    body = head + NOTHING[name].of(20_000_000)
    sitemap = Sitemap()
    found = list(sitemap.read(body))
    assert found == [[]] * (IDLE_MAX // STEP)
    assert sitemap.kind is None
    assert sitemap.error is not None
    assert "next to nothing" in sitemap.error
    # 5 µs a byte, as of all decoders.
    most = 5e-6 * IDLE_MAX
    assert seconds(lambda: list(Sitemap().read(body)), enough=most) < most
