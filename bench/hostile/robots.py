"""The robots.txt files of the attacks: long, or short to send and dear to match.

Each that is dear to match has 2.4 kB of brotli at most, and 1,000 links for its rules, none of
which any rule but the longest prefix decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LINKS = 1000
_EVERYONE = b"user-agent: *\n"
_RULES = 1150
_LETTERS = bytes.maketrans(b"01", b"ab")
# All that three of these letters can be: an index of the rules by a part of them finds each.
_ALL = "aaababbbaa"

AGENTS = _EVERYONE * 5000 + b"".join(b"disallow: /%d\n" % n for n in range(5000))
REPEATED = b"user-agent:*\n" * 19_000 + b"allow:/a\n" * 29_000


def _ends() -> list[bytes]:
    """Letters that distinguish rules; links end with a digit, never with one of these."""
    return [f"{n:011b}".encode().translate(_LETTERS) for n in range(_RULES)]


def _rules(patterns: Iterable[bytes]) -> bytes:
    return _EVERYONE + b"".join(b"allow: /%b\n" % pattern for pattern in patterns)


def _wildcards() -> bytes:
    """81 wildcards and an end: a matcher that goes back tries each way to share the path out
    among them."""
    return _rules(b"*a" * 80 + b"*%b$" % end for end in _ends())


def _near() -> bytes:
    """A text that nearly matches at each place of the path."""
    near = b"a" * 98 + b"b" + b"a" * 98
    return _rules(b"*%b*%b$" % (near, end) for end in _ends())


def _prefixes() -> bytes:
    """A prefix of each length, all of which match: the last one decides."""
    return _rules(b"a" * length for length in range(1, 990))


def _escapes() -> bytes:
    """Letters that are escaped in lower case: each pattern and path is spelt anew."""
    return _rules(b"*%61" * 20 + b"*%c3%a9*" + end.replace(b"b", b"%62") + b"$" for end in _ends())


def _groups() -> bytes:
    """A group for each rule, of our own name and of everyone's."""
    agents = b"user-agent: krowlspider\nuser-agent: *\n"
    return b"".join(agents + b"allow: /*a*a*a*a*%b$\n" % end for end in _ends())


# Body, and the path of its links without their number.
COSTLY: dict[str, tuple[Callable[[], bytes], str]] = {
    "wildcards": (_wildcards, "a" * 1900 + _ALL),
    "near": (_near, "a" * 1900 + _ALL),
    "prefixes": (_prefixes, "a" * 1900),
    "escapes": (_escapes, "%61" * 600 + "%c3%a9" + _ALL),
    "groups": (_groups, "aab" * 600 + _ALL),
}


def links(path: str) -> list[str]:
    """1,000 paths that begin with ``path``."""
    return [f"/{path}{number}" for number in range(LINKS)]
