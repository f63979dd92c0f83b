"""Decide which discovered URLs a crawl queues."""

from __future__ import annotations

import re
from math import inf
from typing import TYPE_CHECKING

from krowlspider.urls.host import domain_of
from krowlspider.urls.length import queued_max
from krowlspider.urls.ports import is_blocked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krowlspider.urls.rules.scope_rules import ScopeRules
    from krowlspider.urls.rules.traps import Traps


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
        the URL, so only depth, length and blocked ports apply. The rules about hosts and ``allow``
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
            elif ":" in host and is_blocked(host):
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
