"""Read the arguments of the broad spider, which are text. Each function raises SeedsError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krowlspider.errors import SeedsError
from krowlspider.urls.scope import AskedScope, ScopeRules

if TYPE_CHECKING:
    from collections.abc import Callable


def number(name: str, text: str, meaning: str) -> int:
    """Return a number from 0 on; ``meaning`` completes the error, as "0 for no limit"."""
    try:
        found = int(text)
    except ValueError:
        found = -1
    if found < 0:
        raise SeedsError(f"-a {name}={text}: give a whole number, {meaning}")
    return found


def asked_scope(scope: str | None, **texts: str | None) -> AskedScope:
    """Return the rules that are given, by the names of `ScopeRules`; None is not given.

    ``scope`` is "new" if they replace those that the JOBDIR keeps.
    """
    if scope not in {None, "new"}:
        raise SeedsError(f"-a scope={scope}: give new, or leave it out")
    given = {name: _READERS[name](name, text) for name, text in texts.items() if text is not None}
    try:
        rules = ScopeRules(**given)
    except ValueError as error:
        raise SeedsError(str(error)) from error
    return AskedScope(rules, given=bool(given), replaces=scope == "new")


def _depth(name: str, text: str) -> int:
    return number(name, text, "0 for only the seeds; leave it out for no limit")


def _patterns(_: str, text: str) -> tuple[str, ...]:
    """Return the expressions in alphabetical order: theirs has no meaning."""
    return tuple(sorted(set(text.split())))


def _flag(name: str, text: str) -> bool:
    if text.lower() not in {"0", "1", "true", "false"}:
        raise SeedsError(f"-a {name}={text}: give 1 or 0")
    return text.lower() in {"1", "true"}


_READERS: dict[str, Callable[[str, str], Any]] = {
    "max_depth": _depth,
    "allow": _patterns,
    "deny": _patterns,
    "same_host": _flag,
    "same_domain": _flag,
}
