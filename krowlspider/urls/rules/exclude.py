"""URLs that are excluded on request, by a list of expressions that may change at any time."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field

from krowlspider.urls.host import host_of
from krowlspider.urls.rules.blocks import Blocks, block_rule

# A line that may be a name, an address or the root URL of a host. Of an IPv6 address in brackets,
# an expression would make a set of characters that is in nearly every URL.
_NAME = re.compile(r"(?:https?://)?(?:\[[0-9a-f:.]+\]|[\w.:-]+)(?::[0-9]*)?/?", re.IGNORECASE)
_IN_BRACKETS = re.compile(r"(?:https?://)?\[[0-9a-f:.]+\](?::[0-9]*)?/?", re.IGNORECASE)


@dataclass(slots=True, eq=False)
class PatternList:
    """The expressions in effect. Each is searched in the normalised URL, so each costs time.

    ``names`` has the lines that name hosts, as rules of `block_rule`: they exclude all URLs of
    these. ``bad`` has (line number, reason) for each bad line of their file.
    """

    patterns: tuple[re.Pattern[str], ...] = ()
    bad: tuple[tuple[int, str], ...] = ()
    names: Blocks = field(default_factory=Blocks)

    def match(self, url: str) -> bool:
        """Return whether a normalised URL is excluded."""
        if any(pattern.search(url) for pattern in self.patterns):
            return True
        return bool(self.names.rules) and self.names.rule_of(host_of(url)) is not None


def parse_patterns(data: bytes) -> PatternList:
    """Return the regular expressions of a file, one per line, and its bad lines.

    A line that names a host is both: an expression, and a name at all its ports and both schemes,
    unless it has a port. Blank lines and lines that begin with "#" are skipped. Lines are numbered
    from 1.
    """
    patterns, bad, names = [], [], {}
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        expression = line.strip()
        if not expression or expression.startswith(b"#"):
            continue
        try:
            text = expression.decode()
            with suppress(ValueError):
                if _NAME.fullmatch(text):
                    names[block_rule(text)] = ""
            if names and _IN_BRACKETS.fullmatch(text):
                continue
            patterns.append(re.compile(text))
        except UnicodeDecodeError:
            bad.append((number, "not UTF-8"))
        except (re.error, RecursionError, OverflowError) as error:
            bad.append((number, f"not a regular expression: {error}"))
    return PatternList(tuple(patterns), tuple(bad), Blocks(names.items()))
