"""The way into the queue for the requisites of pages.

They have identities of their own in the seen set, and their own budget per host. In the queue of
their host they come before its pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.entry import HOPS_MAX, REQUISITE, Entry
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.job.intake import REQUISITE_PRIORITY, Intake
from krowlspider.urls.canonical import IdentityHasher, domain_of, host_of, requisite_identity
from krowlspider.urls.page.requisites.requisite import IMAGE, OTHER, Requisite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy.settings import BaseSettings

    from krowlspider.frontier.outbox import Foreign
    from krowlspider.job.nodes.node import Node


class RequisiteIntake:
    """Queues the requisites of documents that this process has fetched. ``node`` is None for a
    crawl of one process."""

    def __init__(
        self, intake: Intake, hasher: IdentityHasher, settings: BaseSettings, node: Node | None
    ):
        self._intake = intake
        self._hasher = hasher
        self._node = node
        self._same_domain = settings["KROWL_REQUISITES"] != "any"
        self._keeps_via = "metadata" in settings.getlist("KROWL_WARC_ALSO")

    def discover(
        self,
        found: Mapping[str, Requisite],
        *,
        depth: int,
        page: str,
        path: str,
        chain: tuple[str, ...] = (),
    ) -> int:
        """Queue the requisites of a document, by normalised URL; return how many were new.

        ``page`` is the URL of the document, ``path`` its path from the seed, ``depth`` its depth: a
        requisite has the depth of its page. ``chain`` has the URLs whose redirects led here.

        :raises StoreError: as of `Intake.add`
        """
        intake, node = self._intake, self._node
        via = host_of(page)
        urls = self._of_site(found, via)
        hosts = [host_of(url) for url in urls]
        owners = None if node is None else node.foreign_owners(hosts)
        keys = self._hasher.keys(map(requisite_identity, urls))
        # A target with the identity of the URL that redirects to it was not fetched.
        itself = bool(chain) and keys == self._hasher.keys([requisite_identity(chain[-1])])
        kinds = [found[url].kind for url in urls]
        hop = "R" if chain else "E"
        known = [False] if itself else self._known(urls, keys, kinds, hosts, owners)
        candidates: list[Candidate] = []
        foreign: list[Foreign] = []
        for at in [at for at, is_known in enumerate(known) if not is_known]:
            url, host, owner = urls[at], hosts[at], owners[at] if owners else None
            key = None if itself else keys[at]
            if reason := intake.refusal(url, host, depth, via, is_stray=True, is_requisite=True):
                intake.count_dropped(reason)
                continue
            if owner is None and not intake.requisite_budget.take(host):
                intake.count_dropped("requisite_budget")
                continue
            entry = Entry(url, depth, len(chain), request=REQUISITE + found[url].pack())
            entry.chain = chain
            if self._keeps_via:
                entry.via, entry.path = page, f"{path}{hop}"[-HOPS_MAX:]
            if owner is not None:
                foreign += intake.outgoing(owner, host, key, entry)
            else:
                candidates.append(Candidate(host, key, entry, REQUISITE_PRIORITY))
        added = intake.add(candidates, foreign, via=via)
        if added:
            intake.wake()
        return added

    def _known(
        self,
        urls: list[str],
        keys: list[bytes],
        kinds: list[str],
        hosts: list[str],
        owners: list[str | None] | None,
    ) -> list[bool]:
        """Return which requisites are known as such.

        Pictures and other files that are known as pages are known too: the archive gets them once.
        """
        known = self._intake.known_here(keys, hosts.__getitem__, owners)
        asked = [
            at for at, is_known in enumerate(known) if not is_known and kinds[at] in {IMAGE, OTHER}
        ]
        pages = self._hasher.keys([urls[at] for at in asked])
        of_asked = None if owners is None else [owners[at] for at in asked]
        is_page = self._intake.known_here(pages, lambda at: hosts[asked[at]], of_asked)
        for at, is_known in zip(asked, is_page, strict=True):
            known[at] = is_known
        return known

    def _of_site(self, found: Mapping[str, Requisite], via: str) -> list[str]:
        """Return the URLs that KROWL_REQUISITES allows for a document of a host."""
        if not self._same_domain:
            return list(found)
        domain = domain_of(via)
        urls = [url for url in found if domain_of(host_of(url)) == domain]
        if left := len(found) - len(urls):
            self._intake.count_dropped("requisite_site", left)
        return urls
