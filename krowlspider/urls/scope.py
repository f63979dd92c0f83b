"""Decide which discovered URLs a crawl queues.

`ScopeRules` are the rules as a user gives them and a crawl's folder keeps them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from math import inf
from typing import TYPE_CHECKING

from krowlspider.urls.canonical import queued_max
from krowlspider.urls.host import domain_of, has_bad_port

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krowlspider.urls.traps import Traps

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


class Scope:
    """Applies the rules of a crawl to the URLs it discovers.

    ``max_url_length`` is as the limit of `queued_max`. The expressions of ``rules`` are searched in
    the URL.
    """

    def __init__(self, rules: ScopeRules, *, max_url_length: int, traps: Traps | None = None):
        self._max_depth = inf if rules.max_depth is None else rules.max_depth
        self._max_url_length = queued_max(max_url_length)
        self._allow = [re.compile(pattern) for pattern in rules.allow]
        self._deny = [re.compile(pattern) for pattern in rules.deny]
        self._same_host = rules.same_host
        self._same_domain = rules.same_domain
        self._has_rules = bool(rules.allow or rules.deny or rules.same_host or rules.same_domain)
        self._traps = traps

    def refusal(
        self,
        url: str,
        host: str,
        depth: int,
        via_host: str | None,
        *,
        is_requisite: bool = False,
    ) -> str | None:
        """Return in one word why a normalised URL of ``host`` is out of scope; None if it is in."""
        return self.refusals([url], [host], depth, via_host, is_requisite=is_requisite)[0]

    def refusals(
        self,
        urls: Sequence[str],
        hosts: Sequence[str],
        depth: int,
        via_host: str | None,
        *,
        is_requisite: bool = False,
    ) -> list[str | None]:
        """Return what `refusal` does for each of the URLs of one page.

        The words are depth, length, port, host, domain, deny, allow and those of `Traps.refusal`.
        ``via_host`` is the host of the page that links to it. For a seed it is None: a user named
        the URL, so only depth, length and bad ports apply. The rules about hosts and ``allow``
        say which pages are followed, so they do not apply to a requisite of such a page.
        """
        if depth > self._max_depth:
            return ["depth"] * len(urls)
        longest, has_rules = self._max_url_length, self._has_rules and via_host is not None
        traps = None if via_host is None or self._traps is None else self._traps.refusal
        reasons: list[str | None] = []
        for url, host in zip(urls, hosts, strict=True):
            reason = None
            if len(url) > longest:
                reason = "length"
            elif ":" in host and has_bad_port(host):
                reason = "port"
            elif has_rules:
                reason = self._refused_by_rule(url, host, via_host, is_requisite=is_requisite)
            if reason is None and traps is not None:
                reason = traps(url)
            reasons.append(reason)
        return reasons

    def _refused_by_rule(
        self, url: str, host: str, via_host: str | None, *, is_requisite: bool
    ) -> str | None:
        if is_requisite:
            return "deny" if any(rule.search(url) for rule in self._deny) else None
        if self._same_host and host != via_host:
            return "host"
        if self._same_domain and host != via_host and domain_of(host) != domain_of(via_host or ""):
            return "domain"
        if any(rule.search(url) for rule in self._deny):
            return "deny"
        if self._allow and not any(rule.search(url) for rule in self._allow):
            return "allow"
        return None
