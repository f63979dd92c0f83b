"""URLs that are excluded on request, by a list of expressions that may change at any time."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class PatternList:
    """The expressions in effect. Each is searched in the normalised URL, so each costs time.

    ``bad`` has (line number, reason) for each bad line of their file.
    """

    patterns: tuple[re.Pattern[str], ...] = ()
    bad: tuple[tuple[int, str], ...] = ()

    def match(self, url: str) -> bool:
        """Return whether a normalised URL is excluded."""
        return any(pattern.search(url) for pattern in self.patterns)


def parse_patterns(data: bytes) -> PatternList:
    """Return the regular expressions of a file, one per line, and its bad lines.

    Blank lines and lines that begin with "#" are skipped. Lines are numbered from 1.
    """
    patterns, bad = [], []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        expression = line.strip()
        if not expression or expression.startswith(b"#"):
            continue
        try:
            patterns.append(re.compile(expression.decode()))
        except UnicodeDecodeError:
            bad.append((number, "not UTF-8"))
        except (re.error, RecursionError, OverflowError) as error:
            bad.append((number, f"not a regular expression: {error}"))
    return PatternList(tuple(patterns), tuple(bad))
