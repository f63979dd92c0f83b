"""Gemtext: lines by the specification, the ancestor's cases, and pages that are hostile.

Cases marked TLGS are those of its tests (tlgsutils/tests/gemini_parser_test.cpp) and of its
documentation.
"""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.gemini.gemtext import (
    BLOCKS_MAX,
    HEADINGS_MAX,
    LABEL_MAX,
    LINES_MAX,
    LINKS_MAX,
    REFERENCE_MAX,
    Block,
    Gemtext,
    LinkLine,
    read,
)

BASE = "gemini://example.org/"
LOGO = "```\n /\\_/\\\n( o.o )\n > ^ <\n```\n"
CODE = "```python\nprint(sorted(names))\n```\n"


def page(text: str) -> Gemtext:
    return read(text, BASE)


def text_of(text: str) -> list[str]:
    return page(text).text.split("\n")


# TLGS: a link line, its reference and its text.
@pytest.mark.parametrize(
    ("line", "label"),
    [
        ("=> gemini://example.com Example Link", "Example Link"),
        *(("=> gemini://example.com", ""), ("=>gemini://example.com", "")),
        ("=>gemini://example.com Example Link", "Example Link"),
        ("=>               gemini://example.com Example Link", "Example Link"),
        ("=>               gemini://example.com         Example Link", "Example Link"),
        *(("=>\tgemini://example.com", ""), ("=>\tgemini://example.com\t\tHello", "Hello")),
        ("=>\tgemini://example.com\t\tHello    ", "Hello"),
    ],
)
def test_a_link_has_reference_and_text(line: str, label: str):
    assert page(line).links == [LinkLine("gemini://example.com", label, 1)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        *(("# Heading", "Heading"), ("## Heading2", "Heading2"), ("### Heading3", "Heading3")),
        *(
            ("#Heading", "Heading"),
            ("#\tHeading  ", "Heading"),
            ("#### Four", "Four"),
            ("# #tag", "#tag"),
            ("# ~~~ Home ~~~", "Home"),
        ),
    ],
)
def test_a_heading_has_text(line: str, words: str):
    """TLGS, and the specification: whitespace is optional. Of more than three marks, the
    specification takes the fourth for text; no author means that."""
    found = page(line)
    assert (found.headings, found.title, found.text) == ([words], words, words)


@pytest.mark.parametrize("line", ["#", "##   ", "###\t", "=>", "=>   ", "* ", ">", "> "])
def test_a_line_of_its_mark_alone_says_nothing(line: str):
    found = page(line)
    assert (found.text, found.headings, found.links) == ("", [], [])


def test_preformatted_lines_are_apart():
    """TLGS, which leaves out the alternative text: here it stands for the block."""
    found = page("Hello\n```alt of it\n=> /no link\n# no heading\n* words stay\n```\nWorld")
    block = Block("alt of it", "=> /no link\n# no heading\n* words stay")
    assert (found.preformatted, found.links, found.headings) == ([block], [], [])
    assert found.text == f"Hello\nalt of it\n{block.text}\nWorld"


def test_a_block_without_end_reaches_to_the_last_line():
    """TLGS loses it. The specification ends preformatted mode only at the next fence."""
    assert page("Hello\n```\nprint(names)").text == "Hello\nprint(names)"


def test_an_article_is_read():
    """TLGS counts its lines; empty ones are no text here."""
    found = page("# This is a sample article\nHello world\n* list\n\n> quoted\n=> /a Link\n")
    assert found.title == "This is a sample article"
    assert found.text.split("\n") == [found.title, "Hello world", "list", "quoted", "Link"]


def test_empty_lines_are_no_text():
    assert page("\n\n").text == ""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_end_with_lf_or_crlf(end: str):
    found = page(end.join(["# T", "=> /a A", "```x", "print(names)", "```", "* one", "two"]))
    assert (found.title, found.links) == ("T", [LinkLine("/a", "A", 2)])
    assert found.preformatted == [Block("x", "print(names)")]
    assert found.text.split("\n") == ["T", "A", "x", "print(names)", "one", "two"]


def test_the_title_is_the_first_heading_of_the_first_level():
    assert page("## Menu\n# Name\n# Other").title == "Name"
    assert page("Words\n## Menu\n### Part").title == "Menu"
    assert page("Words").title == ""


def test_the_mark_in_front_is_no_text():
    assert page("\ufeff# Title").title == "Title"


def test_colours_of_terminals_are_no_text():
    assert page("# \x1b[1;31mRed\x1b[0m\n=> /a\x1b[0m A").headings == ["Red"]
    assert page("=> /a\x1b[0m A").links == [LinkLine("/a", "A", 1)]


@pytest.mark.parametrize("start", ["", "\n\n", LOGO])
def test_leading_blocks_are_left_out(start: str):
    """TLGS: "I can simply remove all preformatted blocks at the very beginning of the page"."""
    found = page(f"{start}{CODE}# Title\nWords")
    assert found.text.split("\n") == ["Title", "Words"]
    assert found.preformatted[-1] == Block("python", "print(sorted(names))")


def test_a_page_of_blocks_alone_has_text():
    """A manual page or an RFC is often one block. TLGS has no text of it."""
    assert text_of(f"{LOGO}{CODE}") == ["python", "print(sorted(names))"]


@pytest.mark.parametrize("first", ["# Title", "=> / Home", "Words", "* one", "> said"])
def test_a_block_after_any_line_is_not_leading(first: str):
    """TLGS takes all before the first line of text: it loses the code below a heading."""
    assert "print(sorted(names))" in page(f"{first}\n{CODE}").text


def test_pictures_are_left_out_everywhere():
    assert text_of(f"Words\n{LOGO}More words") == ["Words", "More words"]


def test_what_a_picture_shows_is_said():
    assert text_of(f"Words\n{LOGO.replace('```', '```A cat', 1)}") == ["Words", "A cat"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        *(("-----", []), ("-=-=-=-=-", []), ("* * *", []), ("~~~ ~~~", []), ("═══════", [])),
        # TLGS leaves this line out; its words may be searched.
        *(("----- next up ------", ["next up"]), ("***** NEWS *****", ["NEWS"])),
        *(("...and so on...", ["and so on"]), ("-- Anna", ["-- Anna"]), ("Wait...", ["Wait..."])),
        *(("│   ├── src", ["│   ├── src"]), ("(C) 2026", ["(C) 2026"])),
    ],
)
def test_separators_are_no_text(line: str, words: list[str]):
    assert text_of(f"Words\n{line}") == ["Words", *words]


def test_links_are_counted_beyond_the_bound():
    found = page("=> /a\n" * (LINKS_MAX + 5) + f"=> /{'a' * REFERENCE_MAX}\n")
    assert (len(found.links), found.surplus) == (LINKS_MAX, 6)
    assert page(f"=> /{'a' * REFERENCE_MAX}\n").links == []


def test_labels_headings_and_blocks_are_bounded():
    found = page(f"# {'a' * 1000}\n=> /a {'b' * 1000}\n" + "# x\n" * 2000 + "```\n```\n" * 2000)
    assert (len(found.title), len(found.links[0].text)) == (LABEL_MAX, LABEL_MAX)
    assert (len(found.headings), len(found.preformatted)) == (HEADINGS_MAX, BLOCKS_MAX)


def test_further_lines_are_left_out():
    found = page("a\n" * LINES_MAX + "behind")
    assert found.truncated
    assert not page("a\n" * (LINES_MAX - 1) + "last").truncated
    assert "behind" not in found.text


MEGABYTE = 1024 * 1024


@pytest.mark.parametrize(
    "unit",
    [
        *("a", "-", " ", "\n", "```\n", "=>", "=> /a b\n", "=> ", "# ", "#", "```", "* x\n"),
        *("\x1b", "\x1b[", "\x1b[1", "\t", "\r", "=\n", "---a===b", "```\n---a\n", "> \n", "é"),
        *("/\\_ ", "```a\n", "a-" * 50 + "\n"),
    ],
)
@pytest.mark.parametrize("start", ["", "```\n", "---", "x\n```\n"])
def test_work_is_bounded(unit: str, start: str):
    """A megabyte of anything takes 50 ms; the square of a megabyte takes minutes."""
    text = start + unit * (MEGABYTE // len(unit))
    before = time.process_time()
    page(text)
    assert time.process_time() - before < 1.0


@pytest.mark.parametrize("unit", ["a", "\n", "=> /a b\n", "\x1b["])
def test_ten_megabytes_take_no_second(unit: str):
    """One line, and a million links: the event loop waits meanwhile."""
    text = unit * (10 * MEGABYTE // len(unit))
    before = time.process_time()
    page(text)
    assert time.process_time() - before < 1.0


@given(st.text(alphabet="=>#* `-\n\r\t\x1bab[0m/\u2588é", max_size=300) | st.text(max_size=200))
def test_no_text_raises(text: str):
    found = page(text)
    assert len(found.text) <= len(text)
    assert all(link.url_reference.strip() for link in found.links)


def test_nul_is_replaced_as_in_html() -> None:
    document = read("# Nu\0l\n=> /a\0 la\0bel\n```\n\0x y\n```\n", "gemini://a.test/")
    assert document.title == "Nu\ufffdl"
    assert document.links == [("/a\ufffd", "la\ufffdbel", 2)]
    assert "\0" not in document.text + document.preformatted[0].text
