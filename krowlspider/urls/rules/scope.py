"""Decide which discovered URLs a crawl queues."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from krowlspider.urls.host import domain_of
from krowlspider.urls.length import REFERENCE_MAX
from krowlspider.urls.ports import is_blocked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krowlspider.urls.rules.traps import Traps


class Scope:
    """The rules of a crawl for the URLs it discovers.

    ``max_depth`` counts links from a seed, ``max_url_length`` characters; 0 means no limit, but no
    URL may have more than REFERENCE_MAX characters. ``allow`` and ``deny`` are regular expressions
    searched in the URL. ``same_host`` and ``same_domain`` keep links on the host or domain of their
    page.

    :raises ValueError: an expression does not compile; the message names it
    """

    def __init__(
        self,
        *,
        max_depth: int,
        allow: Sequence[str],
        deny: Sequence[str],
        same_host: bool,
        same_domain: bool,
        max_url_length: int,
        traps: Traps | None = None,
    ):
        self._max_depth = max_depth or float("inf")
        # A longer URL would not be parsed again on a retry.
        self._max_url_length = min(max_url_length or REFERENCE_MAX, REFERENCE_MAX)
        self._allow = [_compiled(pattern) for pattern in allow]
        self._deny = [_compiled(pattern) for pattern in deny]
        self._same_host = same_host
        self._same_domain = same_domain
        self._has_rules = bool(allow or deny or same_host or same_domain)
        self._traps = traps

    def refusal(self, url: str, host: str, depth: int, via_host: str | None) -> str | None:
        """Return why a normalised URL of ``host`` is out of scope, in one word; None if it is in.

        The words are depth, length, port, host, domain, deny, allow and those of `Traps.refusal`.
        ``via_host`` is the host of the page that links to it. For a seed it is None: a user named
        the URL, so only depth, length and blocked ports apply.
        """
        if depth > self._max_depth:
            return "depth"
        if len(url) > self._max_url_length:
            return "length"
        if ":" in host and is_blocked(host):
            return "port"
        if via_host is None:
            return None
        if self._has_rules and (reason := self._refused_by_rule(url, host, via_host)):
            return reason
        return None if self._traps is None else self._traps.refusal(url)

    def _refused_by_rule(self, url: str, host: str, via_host: str) -> str | None:
        if self._same_host and host != via_host:
            return "host"
        if self._same_domain and host != via_host and domain_of(host) != domain_of(via_host):
            return "domain"
        if any(rule.search(url) for rule in self._deny):
            return "deny"
        if self._allow and not any(rule.search(url) for rule in self._allow):
            return "allow"
        return None


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as e:
        raise ValueError(f"not a regular expression: {pattern!r}: {e}") from e
