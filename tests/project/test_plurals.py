"""No message says "1 pages"."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from krowlspider.errors import counted
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOMS = ("krowlspider", "extensions", "middlewares")
SOURCES = sorted(path for name in ROOMS for path in ROOT.glob(f"{name}/**/*.py"))
# What follows a number that may be 1.
PLURAL = re.compile(
    r" (?:(?!(?:s|to|of|in|for)\b)[a-z-]+ )?(?:pages|rows|URLs|hosts|requests|files|records|nodes"
    r"|lines|seeds|items|errors|tries|problems|differences|violations|entries|captures|messages"
    r"|sitemaps|expressions)\b(?!/s)"
)
LOGGED = re.compile(rf"%(?:,)?d{PLURAL.pattern}")
# In a source, a text may go on behind quotes.
COUNTED = re.compile(rf"""(?:%,?d|}})(?:["']\s*f?["'])?{PLURAL.pattern}""")


def faults(source: str) -> Iterator[str]:
    """Yield each count in a text that is followed by a plural, whatever the count is.

    A name in capitals is a constant.
    """
    # To parse a file takes the longest: most have no plural behind a number.
    if not COUNTED.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if LOGGED.search(node.value):
                yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield from of_parts(node, node.values)


def of_parts(node: ast.JoinedStr, parts: list[ast.expr]) -> Iterator[str]:
    """Yield the text of an f-string for each such count in it, but for the total in "2 of 9"."""
    texts = [str(part.value) if isinstance(part, ast.Constant) else "" for part in parts]
    for at, part in enumerate(parts[:-1]):
        is_total = at > 0 and texts[at - 1].endswith(" of ")
        if (
            isinstance(part, ast.FormattedValue)
            and is_count(part)
            and PLURAL.match(texts[at + 1])
            and not is_total
        ):
            yield ast.unparse(node)


def is_count(value: ast.FormattedValue) -> bool:
    """Return whether a value is a whole number: by its format, or as a length."""
    form = "" if value.format_spec is None else ast.unparse(value.format_spec)
    text = ast.unparse(value.value)
    return (form == "f','" or text.startswith("len(")) and not text.strip("_").isupper()


def test_a_count_of_one_is_in_the_singular() -> None:
    allowed = ("pages are set aside: each killed", "have no line")
    found = [
        (str(path.relative_to(ROOT)), each)
        for path in SOURCES
        for each in faults(path.read_text())
        if not any(one in each for one in allowed)
    ]
    assert found == []


def test_such_a_message_is_found() -> None:
    source = """
log("%d expressions in force", n)
print(f"{n:,} rows", f"{len(x)} open files")
print(f"{MOST:,} rows", f"{n:,} pages/s", f"{counted(n, 'row')}", f"{n:,} dropped")
"""
    assert len(list(faults(source))) == 3


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "page", "1 page"),
        (2, "page", "2 pages"),
        (0, "try", "0 tries"),
        (1_200, "URL", "1,200 URLs"),
        (2, "process", "2 processes"),
        (1, "process", "1 process"),
        (3, "entry", "3 entries"),
    ],
)
def test_a_number_stands_with_its_noun(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text
