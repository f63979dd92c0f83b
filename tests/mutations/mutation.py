"""One mutation: a small change of the code that breaks a promise."""

from __future__ import annotations

from dataclasses import dataclass


class StaleError(Exception):
    """The mutation does not fit the code any more."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change of one file, and the tests that must fail with it.

    ``name`` says what is broken, ``promise`` which promise that is: the number of an invariant in
    ARCHITECTURE.md, or words. ``old`` is text that ``path`` has exactly once; ``new`` replaces it.
    ``tests`` are arguments for pytest: files, node ids, and options such as ``-k``.
    """

    name: str
    promise: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, source: str) -> str:
        """Return the source with the change.

        :raises StaleError: ``old`` is not in it exactly once, or the result is no Python
        """
        count = source.count(self.old)
        if count != 1:
            raise StaleError(f"{self.path} has the text {count} times")
        changed = source.replace(self.old, self.new)
        try:
            compile(changed, self.path, "exec")
        except SyntaxError as error:
            raise StaleError(f"{self.path} does not compile: {error}") from error
        return changed
