"""Remove lines that a host repeats on its pages: menus, notices, and the like."""

from __future__ import annotations

from xxhash import xxh3_64_intdigest

# Lines that are remembered: twice as many at most.
_LINES = 250_000


class HostLines:
    """Counts the lines of each host. What is in ``pages`` of its pages is no text of the next.

    When memory is full, the lines that have not come for the longest time are forgotten.
    """

    def __init__(self, pages: int, most: int = _LINES):
        self._pages = pages
        self._most = most
        # The pages of a line, by the hash of host and line. What comes moves to the new ones.
        self._new: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def without(self, host: str, text: str) -> str:
        """Return ``text`` without the lines that the host repeats, and count all its lines."""
        kept: list[str] = []
        seen: dict[str, bool] = {}
        for line in text.split("\n"):
            bare = line.strip()
            if bare and bare not in seen:
                seen[bare] = self._count(host, bare) > self._pages
            if not bare or not seen[bare]:
                kept.append(line)
        return "\n".join(kept)

    def _count(self, host: str, line: str) -> int:
        key = xxh3_64_intdigest(f"{host}\n{line}".encode())
        count = self._new.get(key) or self._old.get(key, 0)
        if len(self._new) >= self._most:
            self._new, self._old = {}, self._new
        self._new[key] = count + 1
        return count + 1
