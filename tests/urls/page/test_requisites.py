"""Requisites of pages, style sheets and manifests."""

from __future__ import annotations

import json
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.urls.content.encoding import encoding_named
from krowlspider.urls.page.css import decode_css, urls_in
from krowlspider.urls.page.links import read_page, reading_plan
from krowlspider.urls.page.requisites import (
    IMAGE,
    LEVELS_MAX,
    MANIFEST,
    MAX_REQUISITES,
    OTHER,
    STYLE,
    Requisite,
    Requisites,
    requisites_of_css,
    requisites_of_manifest,
)

URL = "https://a.test/dir/page"
PLAN = reading_plan("krowlspider", follow_nofollow=False, requisites=True)


def read(html: str | bytes, charset: str | None = None) -> Requisites:
    body = html if isinstance(html, bytes) else html.encode()
    found = read_page(body, URL, charset, PLAN).requisites
    assert found is not None
    return found


def short(found: Requisites) -> dict[str, str]:
    return {url.removeprefix("https://a.test/dir/"): kind for url, kind in found.found.items()}


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<img src=x>", {"x": IMAGE}),
        ("<IMG SRC=' x '>", {"x": IMAGE}),
        ("<img src='x?a=1&amp;b=2#f'>", {"x?a=1&b=2": IMAGE}),
        ("<img srcset='x, y 2x'>", {"x": IMAGE, "y": IMAGE}),
        ("<picture><source srcset='x 1w,y 2w'><img></picture>", {"x": IMAGE, "y": IMAGE}),
        ("<img data-src=x src='data:image/gif;base64,R0=='>", {"x": IMAGE}),
        ("<img data-srcset='x 1x'>", {"x": IMAGE}),
        ("<noscript><img src=x></noscript>", {"x": IMAGE}),
        ("<input type=image src=x>", {"x": OTHER}),
        ("<link rel=stylesheet href=x>", {"x": STYLE}),
        ("<link rel='alternate StyleSheet' href=x>", {"x": STYLE}),
        ("<link rel='shortcut icon' href=x>", {"x": IMAGE}),
        ("<link rel=apple-touch-icon href=x>", {"x": IMAGE}),
        ("<link rel=manifest href=x>", {"x": MANIFEST}),
        ("<link rel=modulepreload href=x>", {"x": OTHER}),
        ("<link rel=preload as=style href=x>", {"x": STYLE}),
        ("<link rel=preload as=font href='x&amp;y'>", {"x&y": OTHER}),
        ("<link rel=preload as=image imagesrcset='x 1x, y 2x'>", {"x": IMAGE, "y": IMAGE}),
        ("<link rel=preload as=document href=x>", {}),
        ("<link rel=next href=x><link rel=canonical href=y><link>", {}),
        ("<link title='rel=stylesheet href=n>' rel=stylesheet href=x href=y>", {"x": STYLE}),
        ("<script src=x></script>", {"x": OTHER}),
        ("<video src=x poster=y></video>", {"x": OTHER, "y": IMAGE}),
        ("<audio><source src=x><track src=y></audio>", {"x": OTHER, "y": OTHER}),
        ("<object data=x></object><embed src=y>", {"x": OTHER, "y": OTHER}),
        ("<svg><use href='x#i'/><image xlink:href=y /></svg>", {"x": IMAGE, "y": IMAGE}),
        ("<svg><use href='#i'/></svg>", {}),
        ("<style>a { background: url(x) } @import 'y';</style>", {"x": IMAGE, "y": STYLE}),
        ('<p style="background: URL(&quot;x&quot;)">', {"x": IMAGE}),
        ("<base href=/b/><img src=x>", {"https://a.test/b/x": IMAGE}),
        ("<a href=x>x</a><iframe src=y></iframe><frame src=z>", {}),
        ("<!-- <img src=x> --><script>'<img src=y>'</script>", {}),
        ("<img src=''><img src='#'><img src=page>", {}),
        ("<img src=data:,x><img src=blob:y><img src='javascript:z'><img src=DATA:,u>", {}),
    ],
)
def test_each_element_that_names_requisites(html: str, expected: dict[str, str]) -> None:
    assert short(read(html)) == expected


def test_what_is_no_url_is_counted() -> None:
    found = read(f"<img src=data:,x><img src=mailto:y><img src={'z' * 20_000}>")
    assert (found.refused, found.oversize, short(found)) == (2, 1, {})


def test_page_without_an_icon_says_so() -> None:
    assert not read("<link rel=preload as=image href=x>").has_icon
    assert read("<link rel=icon href=x>").has_icon


def test_queries_have_the_encoding_of_the_page() -> None:
    html = "<meta charset=iso-8859-1><img src='x?é'><img src=é><link rel=icon href='y?é'>"
    found = short(read(html.encode("latin-1")))
    assert found == {"x?%E9": IMAGE, "%C3%A9": IMAGE, "y?%E9": IMAGE}


def test_plan_without_requisites_reads_none() -> None:
    assert read_page(b"<img src=x>", URL, None).requisites is None


@pytest.mark.parametrize(
    ("srcset", "expected"),
    [
        ("x", ["x"]),
        ("x 1x, y 2x", ["x", "y"]),
        ("x,y 2x", ["x,y"]),
        ("x, y", ["x", "y"]),
        (" ,, x 100w ,y", ["x", "y"]),
        ("x (1x, 2x) 3w, y", ["x", "y"]),
        ("x (1x, y", ["x"]),
        (", ,", []),
        ("", []),
        ("x 1x x 2x", ["x"]),
    ],
)
def test_srcset_is_split_as_in_browsers(srcset: str, expected: list[str]) -> None:
    assert list(short(read(f"<img srcset='{srcset}'>"))) == expected


@pytest.mark.parametrize(
    ("css", "expected"),
    [
        ("a{b:url(x)}", [("x", False)]),
        ("a{b:url( 'x y' ) url(\"z\")}", [("x y", False), ("z", False)]),
        ("@import 'x';@import url(y) print;", [("x", True), ("y", True)]),
        ('@IMPORT/**/URL("x");b{c:url(y)}', [("x", True), ("y", False)]),
        ("/* url(x) */ a{b:url(y)}", [("y", False)]),
        ("a{content:'url(x)'; b:url(y)}", [("y", False)]),
        ("a{content:'it\\'s url(x)'}", []),
        ("a{b:'broken\n;c:url(x)}", [("x", False)]),
        ("@namespace svg url(http://www.w3.org/2000/svg); a{b:url(x)}", [("x", False)]),
        (r"a{b:url(x\20 y\)z)}", [("x y)z", False)]),
        ("a{b:url()} c{d:url('')}", []),
        ("a{b:url(x", [("x", False)]),
        ("@importx 'y'; curl(x)", [("x", False)]),
        ("/* url(x)", []),
    ],
)
def test_css_names_urls(css: str, expected: list[tuple[str, bool]]) -> None:
    assert list(urls_in(css)) == expected


def test_fonts_of_css_are_no_pictures() -> None:
    found = requisites_of_css("@font-face{src:url(f.woff2?v=1),url(f.svg)}", URL)
    assert short(found) == {"f.woff2?v=1": OTHER, "f.svg": IMAGE}


def test_css_that_imports_itself_names_nothing() -> None:
    assert requisites_of_css("@import 'page'; @import '';", URL).found == {}


@pytest.mark.parametrize(
    ("body", "label", "expected"),
    [
        ("é".encode(), "", "é"),
        ("é".encode("latin-1"), "iso-8859-1", "é"),
        ('@charset "windows-1252";é'.encode("cp1252"), "", '@charset "windows-1252";é'),
        ('@charset "utf-16";é'.encode(), "", '@charset "utf-16";é'),
        ("\ufeffé".encode(), "iso-8859-1", "é"),
        (b"\xff", "punycode", "\ufffd"),
        (b"x", "iso-2022-kr", "x"),
    ],
)
def test_css_is_decoded(body: bytes, label: str, expected: str) -> None:
    assert decode_css(body, encoding_named(label)) == expected


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ({"icons": [{"src": "x"}, {"src": 1}, {}, "y"]}, {"x": IMAGE}),
        ({"icons": {"src": "x"}}, {}),
        ([1], {}),
    ],
)
def test_manifest_names_icons(manifest: object, expected: dict[str, str]) -> None:
    assert short(requisites_of_manifest(json.dumps(manifest).encode(), URL)) == expected


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 200_000, b'{"icons":"' + b"x" * 300_000])
def test_broken_manifest_names_nothing(body: bytes) -> None:
    assert requisites_of_manifest(body, URL).found == {}


def test_page_names_a_bounded_number() -> None:
    found = read("".join(f"<img src={n}>" for n in range(30_000)))
    assert (len(found.found), found.surplus) == (MAX_REQUISITES, 30_000 - MAX_REQUISITES)


@pytest.mark.parametrize(
    "element", ["<style>{}</style>", "<img srcset='{}'>", "<link rel=icon href=a data='{}'>"]
)
def test_texts_of_a_page_are_read_up_to_a_bound(element: str) -> None:
    long = element.format(" " * 300_000 + "url(x) ")
    found = read(long + element.replace("=a", "=b").format("url(x)"))
    assert (found.surplus, "https://a.test/dir/b" in found.found) == (1, False)
    assert "https://a.test/dir/x" not in found.found


@pytest.mark.parametrize(
    "unit",
    [
        *("<img src=x>", "<img srcset='", "<img srcset='a (' b>", "<link rel=", "<link a='"),
        *("<style>@import/*", "<p style='url(\"", "<style>\\", "<style>url(", "<style>@namespace "),
        *("<use href=", "<image>", "<style>'", "<img srcset='a,,,,,,,,,,"),
    ],
)
def test_time_is_linear_in_the_bytes(unit: str) -> None:
    """Quadratic work for so many bytes takes minutes."""
    body = (unit * (2**17 // len(unit))).encode()
    begun = thread_time()
    read(body)
    assert thread_time() - begun < 1


@given(st.binary())
def test_no_bytes_raise_an_error(body: bytes) -> None:
    read(body)
    read(b"<style>" + body + b"</style><link " + body + b"><img srcset='" + body)
    list(urls_in(decode_css(body, None)))
    requisites_of_manifest(body, URL)


@pytest.mark.parametrize("kind", [IMAGE, STYLE, MANIFEST, OTHER])
def test_requisite_comes_back_from_its_packed_form(kind: str) -> None:
    requisite = Requisite(kind, LEVELS_MAX)
    assert Requisite.unpack(requisite.pack()) == requisite
    assert Requisite.checked([kind, 0]) == Requisite(kind, 0)


@pytest.mark.parametrize("packed", [b"", b"0", b"9image", b"ximage", b"0page", b"0\xff"])
def test_damaged_requisite_is_an_error(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r"requisite|invalid literal|decode"):
        Requisite.unpack(packed)
