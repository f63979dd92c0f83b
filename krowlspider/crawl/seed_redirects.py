"""The redirects of seeds that lead out of the scope: without them a crawl may end at once."""

from __future__ import annotations

# The arguments of a spider that refuse such a redirect, by the word of `Scope.refusal`.
_ARGUMENTS = {"host": "same_host", "domain": "same_domain", "allow": "allow"}
# Redirects that are named.
_NAMED = 3


class SeedRedirects:
    """Counts the redirects of seeds that the scope refuses, and keeps the first ones."""

    def __init__(self) -> None:
        self._count = 0
        self._named: list[str] = []

    def refuse(self, seed: str, target: str, reason: str) -> None:
        """Count a redirect, if an argument about hosts or ``allow`` is the reason."""
        if reason not in _ARGUMENTS:
            return
        self._count += 1
        if self._count <= _NAMED:
            self._named.append(f"{seed} to {target} ({_ARGUMENTS[reason]})")

    def warning(self) -> str:
        """Return the redirects with the way out; "" if none was refused."""
        if not self._count:
            return ""
        rest = self._count - len(self._named)
        named = ", ".join([*self._named, *([f"{rest:,} more"] if rest else [])])
        return (
            f"Redirects of seeds lead out of the scope and were not followed: {named}. Give the"
            " targets as seeds, or begin a new JOBDIR with a wider scope"
        )
