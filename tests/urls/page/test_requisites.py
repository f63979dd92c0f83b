"""Requisites of pages, style sheets and manifests."""

from __future__ import annotations

import json

import pytest

from krowlspider.urls.encoding import encoding_named
from krowlspider.urls.page.links import read_page, reading_plan
from krowlspider.urls.page.requisites.found import (
    MAX_REQUISITES,
    Requisites,
    decode_css,
    requisites_of_css,
    requisites_of_manifest,
    urls_in,
)
from krowlspider.urls.page.requisites.requisite import (
    EMBED,
    IMAGE,
    LEVELS_MAX,
    MANIFEST,
    MODULE,
    MODULE_LEVELS_MAX,
    OTHER,
    STYLE,
    Requisite,
)
from tests.support.tables import table
from tests.support.work import seconds

URL = "https://a.test/dir/page"
PLAN = reading_plan("krowlspider", follow_nofollow=False, requisites=True)


def read(html: str | bytes, charset: str | None = None) -> Requisites:
    body = html if isinstance(html, bytes) else html.encode()
    found = read_page(body, URL, charset, PLAN).requisites
    assert found is not None
    return found


def short(found: Requisites) -> dict[str, str]:
    return {url.removeprefix("https://a.test/dir/"): kind for url, kind in found.found.items()}


@table(
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
        ("<link rel=modulepreload href=x>", {"x": MODULE}),
        ("<link rel=modulepreload as=worker href=x>", {"x": OTHER}),
        ("<link rel=prefetch href=x><link rel=preconnect href=y>", {}),
        ("<link rel=preload as=style href=x>", {"x": STYLE}),
        ("<link rel=preload as=font href='x&amp;y'>", {"x&y": OTHER}),
        ("<link rel=preload as=image imagesrcset='x 1x, y 2x'>", {"x": IMAGE, "y": IMAGE}),
        ("<link rel=preload as=document href=x>", {}),
        ("<link rel=next href=x><link rel=canonical href=y><link>", {}),
        ("<link title='rel=stylesheet href=n>' rel=stylesheet href=x href=y>", {"x": STYLE}),
        ("<script src=x></script>", {"x": OTHER}),
        ("<video src=x poster=y></video>", {"x": OTHER, "y": IMAGE}),
        ("<audio><source src=x><track src=y></audio>", {"x": OTHER, "y": OTHER}),
        ("<object data=x></object><embed src=y>", {"x": EMBED, "y": EMBED}),
        ("<img src=x><object data=x></object>", {"x": EMBED}),
        ("<img src=x><object data=./x></object>", {"x": EMBED}),
        ("<script src=x></script><script type=module src='./x'></script>", {"x": MODULE}),
        ("<link rel=preload as=script href=x><script type=module src=x></script>", {"x": MODULE}),
        ("<svg><use href='x#i'/><image xlink:href=y /></svg>", {"x": IMAGE, "y": IMAGE}),
        ("<svg><use href='#i'/></svg>", {}),
        (
            "<svg><filter><feImage href=x /><feImage xlink:href=y /></filter></svg>",
            {"x": IMAGE, "y": IMAGE},
        ),
        ("<image src=x>", {"x": OTHER}),
        ("<body background=x>", {"x": IMAGE}),
        ("<BODY BACKGROUND='x'>", {"x": IMAGE}),
        (
            (
                "<table background=x><thead background=y><tr background=z><th background=w><td"
                " background=v>"
            ),
            dict.fromkeys("xyzwv", IMAGE),
        ),
        (
            "<table><col background=x><tbody background=y><tfoot background=z>",
            dict.fromkeys("xyz", IMAGE),
        ),
        ("<style>a { background: url(x) } @import 'y';</style>", {"x": IMAGE, "y": STYLE}),
        ("<p style='background: image-set(\"x\" 1x)'>", {"x": IMAGE}),
        ("<p style='color: rgb(1, 2, 3)'>", {}),
        ('<p style="background: URL(&quot;x&quot;)">', {"x": IMAGE}),
        ("<base href=/b/><img src=x>", {"https://a.test/b/x": IMAGE}),
        ("<a href=x>x</a><iframe src=y></iframe><frame src=z>", {}),
        ("<frameset><frame src=x.png><frame src=y.html></frameset>", {"x.png": EMBED}),
        (
            "<iframe src='x.SVG?a#b'></iframe><iframe src=y.pdf></iframe>",
            {"x.SVG?a": EMBED, "y.pdf": EMBED},
        ),
        ("<iframe data-src=x.png></iframe>", {}),
        ("<iframe srcdoc=\"<img src=x><p style='background:url(y)'>\">", {"x": IMAGE, "y": IMAGE}),
        (
            '<iframe srcdoc="<base href=d/><img src=x>"></iframe><img src=y>',
            {"d/x": IMAGE, "y": IMAGE},
        ),
        ('<base href=/b/><iframe srcdoc="<img src=x>">', {"https://a.test/b/x": IMAGE}),
        ('<iframe srcdoc="<link rel=stylesheet href=x><a href=y>y</a>" src=z>', {"x": STYLE}),
        ('<iframe srcdoc="<iframe srcdoc=&quot;<img src=x>&quot;>">', {"x": IMAGE}),
        ('<iframe srcdoc="<base href=data:,x><img src=x>">', {"x": IMAGE}),
        ("<iframe srcdoc='text'></iframe><iframe srcdoc></iframe>", {}),
        ("<!-- <img src=x> --><script>'<img src=y>'</script>", {}),
        ("<img src=''><img src='#'><img src=page>", {}),
        ("<img src=data:,x><img src=blob:y><img src='javascript:z'><img src=DATA:,u>", {}),
    ],
)
def test_each_element_that_names_requisites(html: str, expected: dict[str, str]) -> None:
    assert short(read(html)) == expected


LAZY = [
    *("data-src", "data-original", "data-lazy-src", "data-lazy", "data-lazyload", "data-ll-src"),
    *("data-src-retina", "data-echo", "data-orig-src", "data-cfsrc", "data-actualsrc", "lowsrc"),
    *("data-flickity-lazyload", "data-hi-res-src", "data-image-src", "DATA-ORIGINAL", "Lowsrc"),
]


@table("attribute", LAZY)
def test_pictures_of_lazy_loaders_are_found(attribute: str) -> None:
    found = short(read(f"<img src=data:,x {attribute}='/x?a&amp;b' alt='y>'>"))
    assert found == {"https://a.test/x?a&b": IMAGE}


@pytest.mark.parametrize(
    "attribute",
    [
        *("data-srcset", "data-lazy-srcset", "data-lazyload-srcset", "data-original-set"),
        *("data-flickity-lazyload-srcset", "data-cfsrcset", "data-orig-srcset"),
    ],
)
def test_srcsets_of_lazy_loaders_are_split(attribute: str) -> None:
    assert short(read(f"<img {attribute}='x 1x, y 2x'>")) == dict.fromkeys("xy", IMAGE)


def test_sources_of_lazy_loaders_are_found() -> None:
    html = (
        "<picture><source data-srcset='a 1x, b 2x'><source data-lazy-srcset='c 1w'><img></picture>"
        "<video data-src=d><source data-src=e></video>"
    )
    pictures, others = dict.fromkeys("abc", IMAGE), dict.fromkeys("de", OTHER)
    assert short(read(html)) == pictures | others


@table("attribute", ["data-bg", "data-background", "data-background-image"])
@table(
    ("value", "found"),
    [
        ("x.png", {"x.png": IMAGE}),
        ("/x", {"https://a.test/x": IMAGE}),
        ("//b.test/x", {"https://b.test/x": IMAGE}),
        ("x.jpg?a=b", {"x.jpg?a=b": IMAGE}),
        ("x(1).jpg", {"x(1).jpg": IMAGE}),
        ("URL(x)", {"x": IMAGE}),
        ("url(&quot;x y&quot;)", {"x%20y": IMAGE}),
        ("linear-gradient(red, blue), url('x')", {"x": IMAGE}),
        ("image-set('x' 1x, 'y' 2x)", {"x": IMAGE, "y": IMAGE}),
        *(
            (value, {})
            for value in ("", "dark", "#fff", "true", "1.5", "{&quot;a&quot;:&quot;/x.png&quot;}")
        ),
        ("data:image/png;base64,AA/AA", {}),
    ],
)
def test_lazy_backgrounds_are_urls_or_css(
    attribute: str, value: str, found: dict[str, str]
) -> None:
    for tag in ("div", "section", "a href=x", "li"):
        assert short(read(f'<{tag} {attribute}="{value}">x')) == found


def test_sets_of_lazy_backgrounds_are_split() -> None:
    """As lazysizes documents its bgset."""
    html = "<div data-bgset='a.jpg [(max-width: 480px)] | b.jpg 1x, c.jpg 2x'>x</div>"
    assert short(read(html)) == dict.fromkeys(["a.jpg", "b.jpg", "c.jpg"], IMAGE)


@pytest.mark.parametrize("value", ["true", "1", "0", "", "lazy", "ondemand", "#x"])
def test_lazy_attributes_without_url_name_nothing(value: str) -> None:
    assert (
        short(read(f"<img data-lazy='{value}' data-original='{value}' data-echo={value!r}>")) == {}
    )


def test_documents_in_documents_are_read_to_a_bound() -> None:
    html = "<img src=x5>"
    for level in reversed(range(5)):
        inner = html.replace("&", "&amp;").replace('"', "&quot;")
        html = f'<img src=x{level}><iframe srcdoc="{inner}"></iframe>'
    found = read(html)
    assert short(found) == {f"x{level}": IMAGE for level in range(4)}
    assert found.nested == 1


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


@table(
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


@table(
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
        # Not valid: such a url() is skipped up to its end.
        ("a{b:url(/un q.png) url(y)}", [("y", False)]),
        ("a{b:url(x'y) url(z)} c{d:url(x(y) url(w)}", [("z", False), ("w", False)]),
        ('a{b:url(x"y)} c{d:url("z")}', [("z", False)]),
        ("a{b:url(x y\\) url(n)) url(z)}", [("z", False)]),
        ("a{b:url( x\n) url(\ty )}", [("x", False), ("y", False)]),
        ('a{b:url("x\ny")} c{d:url(z)}', [("z", False)]),
        ("@import url(/un q.css); @import y.css; @import 'z';", [("z", True)]),
        ("@import url('x') layer(a) supports(b:c) screen;", [("x", True)]),
        ("a{b:image-set('x' 1x, \"y\" 2x)}", [("x", False), ("y", False)]),
        (
            "a{b:-webkit-image-set(url(x) 1x, url('y') 2x), url(z)}",
            [(each, False) for each in "xyz"],
        ),
        (
            "a{b:IMAGE-SET( 'x' type('image/avif') , url(y) type(\"n\") 2x )}",
            [("x", False), ("y", False)],
        ),
        (
            "a{b:image-set('x' calc(1x * (1 + 1)), linear-gradient(rgb(1, 2, 3), red) 1x, 'y' 2x)}",
            [("x", False), ("y", False)],
        ),
        ("a{b:image-set(/* 'n' */'x' 1x)}", [("x", False)]),
        ("a{b:image-set('x\\20 y' 1x", [("x y", False)]),
        ("a{b:image-set()} c{d:'image-set(\"x\")'} /* image-set('x') */", []),
        ("a{b:cross-fade(url(x), url(y), 50%)}", [("x", False), ("y", False)]),
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


@table(
    "unit",
    [
        *("<img src=x>", "<img srcset='", "<img srcset='a (' b>", "<link rel=", "<link a='"),
        *("<style>@import/*", "<p style='url(\"", "<style>\\", "<style>url(", "<style>@namespace "),
        *("<use href=", "<image>", "<style>'", "<img srcset='a,,,,,,,,,,"),
        *(
            "<style>image-set(",
            "<style>image-set((",
            "<style>url(x ",
            "<style>url('",
            "<style>@import u",
        ),
        *(
            '<iframe srcdoc="',
            "<iframe srcdoc='<img src=x>'>",
            "<script type=module>",
            "<frame src=x>",
        ),
        *(
            "<img data-src=",
            "<img data-srcset=a data-x='",
            "<p data-bg=/",
            "<embed src=x>",
            "<td background=x>",
        ),
        *(
            "<script type=importmap>{",
            "<script type=module src=x",
            "<script type=module>import{",
            "<object data=x>",
        ),
    ],
)
def test_time_is_linear_in_the_bytes(unit: str) -> None:
    """Quadratic work for so many bytes takes minutes."""
    body = (unit * (2**17 // len(unit))).encode()
    assert seconds(lambda: read(body), enough=1) < 1


@pytest.mark.parametrize("kind", [IMAGE, STYLE, MANIFEST, OTHER, EMBED, MODULE])
def test_requisite_comes_back_from_its_packed_form(kind: str) -> None:
    requisite = Requisite(kind, LEVELS_MAX)
    assert Requisite.unpack(requisite.pack()) == requisite
    assert Requisite.checked([kind, 0]) == Requisite(kind, 0)


@pytest.mark.parametrize(
    ("kind", "most"), [(STYLE, LEVELS_MAX), (EMBED, LEVELS_MAX), (MODULE, MODULE_LEVELS_MAX)]
)
def test_documents_are_read_to_a_level(kind: str, most: int) -> None:
    """What the last one names is still fetched."""
    assert not Requisite(kind, most).is_too_deep
    assert Requisite(kind, most + 1).is_too_deep
    assert not Requisite(IMAGE, most).is_too_deep


@pytest.mark.parametrize("packed", [b"", b"0", b"10image", b"ximage", b"0page", b"0\xff"])
def test_damaged_requisite_is_an_error(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r"requisite|invalid literal|decode"):
        Requisite.unpack(packed)
