"""The rules of a crawl's scope as a user gives them and a crawl's folder keeps them."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

# The greatest number that a crawl's folder can keep.
_DEPTH_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ScopeRules:
    """Which discovered URLs a crawl queues; without values it queues all.

    ``max_depth`` is the most links from a seed: 0 means only the seeds, None no limit. ``allow``
    and ``deny`` are regular expressions. ``same_host`` and ``same_domain`` keep links on the host
    or domain of their page.

    :raises ValueError: an expression does not compile or is not printable, or the depth is out of
        range; the message names it
    """

    max_depth: int | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    same_host: bool = False
    same_domain: bool = False

    def __post_init__(self) -> None:
        if self.max_depth is not None and not 0 <= self.max_depth <= _DEPTH_MAX:
            raise ValueError(f"max_depth={self.max_depth} is not from 0 to {_DEPTH_MAX}")
        for pattern in (*self.allow, *self.deny):
            # A command line may hold bytes that are no text.
            if not pattern.isprintable():
                raise ValueError(f"not a regular expression: {pattern!r}: give printable text")
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"not a regular expression: {pattern!r}: {error}") from error

    def __str__(self) -> str:
        """Return the rules that are set as ``name=value``, or ``no limits``."""
        unset = ScopeRules().texts()
        rules = [f"{name}={text}" for name, text in self.texts().items() if text != unset[name]]
        return " ".join(rules) or "no limits"

    def differences(self, other: ScopeRules) -> list[str]:
        """Return a phrase for each rule that has another value in ``other``."""
        theirs = other.texts()
        return [
            f"{name} is {text}, not {theirs[name]}"
            for name, text in self.texts().items()
            if text != theirs[name]
        ]

    def texts(self) -> dict[str, str]:
        """Return the value of each rule as a user writes it, or ``unset``."""
        return {rule.name: _text(getattr(self, rule.name)) for rule in fields(self)}


@dataclass(frozen=True, slots=True)
class AskedScope:
    """The scope that a start asks for.

    ``given`` is false if the user named no rule: then a kept scope holds. ``replaces`` is true if
    the rules replace a kept scope.
    """

    rules: ScopeRules
    given: bool
    replaces: bool


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, tuple):
        value = " ".join(value) or None
    return "unset" if value is None else str(value)
