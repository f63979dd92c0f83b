"""Remove lines that a host repeats on its pages: menus, notices, and the like."""

from __future__ import annotations

from xxhash import xxh3_64_intdigest

_MARKUP = " \t\r#>*+-|`"
# Lines in each of two generations, of which the older is forgotten when the newer is full.
_LINES = 250_000


class HostLines:
    """Counts the lines of each host. A line that ``pages`` of its pages had is repeated.

    At most twice ``most`` lines are remembered, those that came last.
    """

    def __init__(self, pages: int, most: int = _LINES):
        self._pages = pages
        self._most = most
        # The pages of a line, by the hash of host and line. A line that comes again is new again.
        self._new: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def repeated(self, host: str, text: str) -> set[str]:
        """Count the lines of a text. Return those that the host repeats, as `bare` gives them."""
        lines = dict.fromkeys(map(bare, text.split("\n")))
        return {line for line in lines if line and self._count(host, line) > self._pages}

    def _count(self, host: str, line: str) -> int:
        key = xxh3_64_intdigest(f"{host}\n{line}".encode())
        count = self._new.get(key) or self._old.get(key, 0)
        if len(self._new) >= self._most:
            self._new, self._old = {}, self._new
        self._new[key] = count + 1
        return count + 1


def bare(line: str) -> str:
    """Return a line without what stands around it in Markdown."""
    return line.strip(_MARKUP)


def without(text: str, lines: set[str]) -> str:
    """Return ``text`` without these lines, which are `bare`."""
    if not lines:
        return text
    return "\n".join(line for line in text.split("\n") if bare(line) not in lines)
