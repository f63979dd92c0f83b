"""Find the line of a robots.txt that decides about a URL, to show it to a person."""

from __future__ import annotations

from typing import NamedTuple

from krowlspider.politeness.path_rules import PathRules, spelt
from krowlspider.politeness.robots import rules_for

# A file with more rules is not searched: that would hold the event loop for over 20 ms.
RULES_MAX = 5000
# Lines with the same rule that are tried.
_TRIED = 10


class RobotsLine(NamedTuple):
    """A line of a robots.txt; ``number`` counts from 1."""

    number: int
    text: str


def deciding_line(body: bytes, agent: str, url: str) -> RobotsLine | None:
    """Return the line whose rule decides whether the product token ``agent`` may fetch ``url``.

    It is the longest pattern that matches, and an allowing one among equals: RFC 9309, section
    2.2.2. Return None if no rule matches, the file has more than RULES_MAX rules, or the rule is on
    no line of its bytes.
    """
    rules = rules_for(body, agent)
    path = url[url.index("/", 8) :]
    if len(rules) > RULES_MAX:
        return None
    matching = [pattern for pattern in rules if PathRules({pattern: False}).allow(path) is False]
    if not matching:
        return None
    decides = max(matching, key=lambda pattern: (len(spelt(pattern)), rules[pattern]))
    lines = body.splitlines()
    found = [at for at, line in enumerate(lines) if _has(line, decides, allows=rules[decides])]
    if not found:
        # The lines of UTF-16, for one, are not those of the body's bytes.
        return None
    at = found[0]
    if len(found) > 1:
        # The rule stands in the groups of other crawlers too: without its own line, it is gone.
        own = (at for at in found[:_TRIED] if rules_for(_without(lines, at), agent) != rules)
        at = next(own, at)
    return RobotsLine(at + 1, lines[at].decode(errors="replace").strip())


def _has(line: bytes, pattern: str, *, allows: bool) -> bool:
    """Return whether a line has this rule."""
    # Most lines have not even its text.
    if pattern.encode() not in line and pattern.encode("latin-1", "replace") not in line:
        return False
    return rules_for(b"User-agent: *\n" + line, "") == {pattern: allows}


def _without(lines: list[bytes], at: int) -> bytes:
    return b"\n".join([*lines[:at], b"", *lines[at + 1 :]])
