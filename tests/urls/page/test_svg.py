"""Requisites of SVG documents in objects and frames."""

from __future__ import annotations

import pytest

from krowlspider.urls.page.requisites.elements import SVG_MAX, requisites_of_svg
from krowlspider.urls.page.requisites.found import MAX_REQUISITES
from krowlspider.urls.page.requisites.requisite import IMAGE, MODULE, OTHER, STYLE
from tests.support.tables import table

URL = "https://a.test/dir/picture.svg"
NAMESPACES = (
    'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    ' xmlns:h="http://www.w3.org/1999/xhtml"'
)


def short(body: str | bytes) -> dict[str, str]:
    data = body if isinstance(body, bytes) else body.encode()
    found = requisites_of_svg(data, URL).found
    return {url.removeprefix("https://a.test/dir/"): kind for url, kind in found.items()}


def svg(content: str, head: str = "") -> str:
    return f"{head}<svg {NAMESPACES}>{content}</svg>"


@table(
    ("content", "expected"),
    [
        ("<image href='x'/><image xlink:href='y'/>", {"x": IMAGE, "y": IMAGE}),
        ("<image href='x' xlink:href='n'/>", {"x": IMAGE}),
        ("<use href='x.svg#a'/><use xlink:href='#b'/>", {"x.svg": IMAGE}),
        ("<filter><feImage href='x'/></filter>", {"x": IMAGE}),
        ("<style>@import 'x'; a { fill: url(y.svg#b) }</style>", {"x": STYLE, "y.svg": IMAGE}),
        ("<style><![CDATA[@import url(x);]]></style>", {"x": STYLE}),
        ("<style>@import &quot;x&quot;;</style>", {"x": STYLE}),
        ("<style>@font-face { src: url(x.woff2) }</style>", {"x.woff2": OTHER}),
        ("<g style='cursor: url(x), auto'/>", {"x": IMAGE}),
        (
            "<rect fill='url(a.svg#b)' filter='url(c.svg#d)' mask='url(\"e.svg#f\")'/>",
            {"a.svg": IMAGE, "c.svg": IMAGE, "e.svg": IMAGE},
        ),
        ("<rect fill='url(#a)' mask='url(picture.svg#b)' class='url(n)'/>", {}),
        ("<script href='x'/><script xlink:href='y' type='module'/>", {"x": OTHER, "y": MODULE}),
        ("<h:link rel='stylesheet' href='x'/><h:link rel='next' href='n'/>", {"x": STYLE}),
        ("<g><h:img src='x' srcset='y 1x, z 2x'/></g>", dict.fromkeys("xyz", IMAGE)),
        ("<h:iframe src='n'/><h:video src='x' poster='y'/>", {"x": OTHER, "y": OTHER}),
        ("<a href='n'><text>n</text></a><linearGradient href='n'/>", {}),
        ("<image href='data:,x'/><image href=''/><image/>", {}),
        ("<image href='x?a=1&amp;b=2'/>", {"x?a=1&b=2": IMAGE}),
        ("<!-- <image href='n'/> --><image href='x'/>", {"x": IMAGE}),
        ("<x:image xmlns:x='urn:other' href='n'/>", {}),
    ],
)
def test_each_element_that_an_svg_loads(content: str, expected: dict[str, str]) -> None:
    assert short(svg(content)) == expected


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ('<?xml-stylesheet href="x" type="text/css"?>', {"x": STYLE}),
        ("<?xml-stylesheet type='text/css' href='x'?>", {"x": STYLE}),
        ('<?xml-stylesheet href="x" alternate="yes"?>', {"x": STYLE}),
        ('<?xml-stylesheet href="x.xsl" type="text/xsl"?>', {"x.xsl": OTHER}),
        ('<?xml version="1.0"?>\n<!-- c --><?xml-stylesheet href="x"?>', {"x": STYLE}),
        ('<?xml-stylesheet type="text/css"?><?xml-other href="n"?><?xml-stylesheet?>', {}),
        ('<!DOCTYPE svg SYSTEM "http://h/svg11.dtd"><?xml-stylesheet href="x"?>', {"x": STYLE}),
    ],
)
def test_style_sheets_of_instructions_before_the_root(head: str, expected: dict[str, str]) -> None:
    assert short(svg("<?xml-stylesheet href='n'?>", head)) == expected


def test_short_entities_of_editors_are_known() -> None:
    head = "<!DOCTYPE svg [<!ENTITY ns 'http://www.w3.org/2000/svg'><!ENTITY a 'x'>]>"
    assert short(f"{head}<svg xmlns='&ns;'><image href='&a;.png'/></svg>") == {"x.png": IMAGE}


@pytest.mark.parametrize(
    "definitions",
    [
        "<!ENTITY a 'aaaaaaaa'><!ENTITY b '&a;&a;&a;&a;'>",
        f"<!ENTITY b '{'b' * 1000}'>",
        "<!ENTITY b SYSTEM 'file:///etc/passwd'>",
        "<!ENTITY % b SYSTEM 'http://127.0.0.1/'> %b;",
    ],
)
def test_other_entities_end_the_reading(definitions: str) -> None:
    image = svg("<image href='&b;'/>")
    assert short(f"<!DOCTYPE svg [{definitions}]>{image}") == {}


@pytest.mark.parametrize("end", ["<image", "<a></b>", "&x;", "\0", "& <image href='n'/>", "]]>"])
def test_xml_is_read_up_to_its_first_error(end: str) -> None:
    """As browsers do."""
    assert short(f"<svg {NAMESPACES}><image href='x'/>{end}") == {"x": IMAGE}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1"])
def test_declared_encoding_holds(encoding: str) -> None:
    body = svg("<image href='é'/>", f"<?xml version='1.0' encoding='{encoding}'?>")
    assert short(body.encode(encoding)) == {"%C3%A9": IMAGE}


def test_a_document_is_read_up_to_bounds() -> None:
    images = "".join(f"<image href='{n}'/>" for n in range(2000))
    found = requisites_of_svg(svg(images).encode(), URL)
    assert (len(found.found), found.surplus) == (MAX_REQUISITES, 2000 - MAX_REQUISITES)
    assert short(svg(f"<!--{' ' * 400_000}--><image href='n'/>")) == {}
    assert short(svg(f"<g/>{' ' * SVG_MAX}<image href='n'/>")) == {}
    assert short(svg(f"<style>{' ' * 300_000}</style><style>@import 'n';</style>")) == {}
