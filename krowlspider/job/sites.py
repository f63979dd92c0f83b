"""What the sheets of KROWL_POLICIES say about pops and fetches.

A crawl without policies has no `Sites`, and asks nothing.
"""

from __future__ import annotations

import logging
from time import time
from typing import TYPE_CHECKING

from krowlspider.politeness.delay import SiteDelays
from krowlspider.recrawl.value import INTERVAL_MAX, INTERVAL_MIN, USUAL, Terms
from krowlspider.urls.canonical import host_of

if TYPE_CHECKING:
    from krowlspider.job.site_policies import SitePolicies
    from krowlspider.policies.keys import Policy
    from krowlspider.policies.sheets import HostPolicies
    from krowlspider.politeness.delay import DelayPolicy

logger = logging.getLogger(__name__)

Headers = list[tuple[bytes, bytes]]


class Sites:
    """What the sheets in force say. ``agent`` is the User-Agent of every request."""

    def __init__(self, policies: SitePolicies, agent: str):
        self._policies = policies
        self._agent = agent
        # Files of credentials that are not sent to some http URL, as was logged.
        self._warned: set[str] = set()

    # --- which policy holds ---

    def of_host(self, host: str) -> HostPolicies | None:
        """Return what the sheets say about a host; None if no sheet covers it."""
        return self._policies.of(host)

    def of(self, url: str, host: str = "") -> Policy | None:
        """Return what the sheets say about a normalised URL; None if none covers its host.

        ``host`` is that of the URL, if it is at hand.
        """
        found = self._policies.of(host or host_of(url))
        return None if found is None else found.of(url)

    def sheet_of(self, url: str, host: str, key: str) -> str:
        """Return the name of the sheet that decides a key for a URL, and the line of the key."""
        found = self.of_host(host)
        why = None if found is None else found.why(url, key)
        return "" if why is None else f"{why.sheet}, line {why.line}"

    # --- of a host as a whole ---

    def delay(self, host: str) -> float:
        """Return the least delay of a host in seconds; 0 if no sheet has one."""
        found = self._policies.of(host)
        return 0.0 if found is None else found.delay

    def delays(self, policy: DelayPolicy) -> SiteDelays:
        """Return a policy of delays with those of the sheets."""
        longest = max(
            (sheet.values.get("delay", 0.0) for sheet in self._policies.policies.sheets), default=0
        )
        return SiteDelays.over(policy, self.delay, longest)

    def concurrency(self, domain: str) -> int | None:
        """Return how many requests to a registrable domain may be in flight; None if no sheet says
        that."""
        found = self._policies.of(domain)
        return None if found is None else found.fixed.concurrency

    # --- of a page ---

    def terms(self, url: str) -> Terms:
        """Return how often a page is fetched again."""
        policy = self.of(url)
        if policy is None:
            return USUAL
        most = INTERVAL_MAX if policy.recrawl_max is None else policy.recrawl_max
        least = min(INTERVAL_MIN, most) if policy.recrawl_min is None else policy.recrawl_min
        weight = 1.0 if policy.weight is None else policy.weight
        return Terms(weight, least, max(least, most))

    def open_headers(self, policy: Policy) -> dict[bytes, bytes]:
        """Return the headers of a sheet that are no secret: its own, and the User-Agent if it has a
        suffix."""
        given = {
            name.title().encode(): text.encode() for name, text in (policy.headers or {}).items()
        }
        if policy.user_agent_suffix:
            given[b"User-Agent"] = f"{self._agent} {policy.user_agent_suffix}".encode("latin-1")
        return given

    def headers(self, policy: Policy, url: str, own: Headers) -> tuple[Headers, tuple[bytes, ...]]:
        """Return the headers of a request for a URL, and those lines of them that are secret.

        ``own`` are its headers without the sheets: those of the settings give way to the sheet's,
        by name. Credentials go over https only, unless the sheet permits http.
        """
        given = self.open_headers(policy)
        secrets: list[bytes] = []
        if policy.auth and not (url.startswith("https:") or policy.auth_over_http):
            self._warn_of_http(policy.auth, url)
        elif policy.auth:
            given[b"Authorization"] = self._policies.version.files.auth[policy.auth]
            secrets.append(_line(b"Authorization", given[b"Authorization"]))
        if policy.cookies and (
            sent := self._policies.version.files.cookies[policy.cookies].sent(url, time())
        ):
            before = next((value for name, value in own if name == b"Cookie"), b"")
            given[b"Cookie"] = before + b"; " * bool(before) + sent
            secrets.append(_line(b"Cookie", given[b"Cookie"]))
        kept = [(name, value) for name, value in own if name not in given]
        return [*given.items(), *kept], tuple(secrets)

    def _warn_of_http(self, auth: str, url: str) -> None:
        if auth not in self._warned:
            self._warned.add(auth)
            logger.warning(
                "auth = %r is not sent over http, as to %s: use https, or set auth_over_http = true"
                " in its sheet",
                auth,
                host_of(url),
            )


def _line(name: bytes, value: bytes) -> bytes:
    return b"%b: %b\r\n" % (name, value)
