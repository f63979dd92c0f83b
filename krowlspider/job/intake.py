"""The only way for URLs into a crawl: seen set, scope, exclusions, owner, queue.

Dedup runs before scope, because most links of a page are known.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from itertools import compress, islice
from typing import TYPE_CHECKING

from krowlspider.frontier.entry import HOPS_MAX, UNMARKED, Entry
from krowlspider.frontier.entry_queues import FELL_BACK, HOOK, Candidate, Lease
from krowlspider.frontier.hosts.host import SEED_PRIORITY, Host
from krowlspider.frontier.outbox import Foreign, foreign_mark
from krowlspider.frontier.seed_table import ELSEWHERE, KNOWN, SeedLine
from krowlspider.frontier.store.store import STORE_ERRORS
from krowlspider.job.limits import SeedRedirects
from krowlspider.urls.canonical import (
    URL_MAX,
    IdentityHasher,
    authority_of,
    host_of,
    normalise,
    path_start,
)
from krowlspider.urls.page.headers import escape_octets
from krowlspider.urls.scope import Scope, ScopeRules
from krowlspider.urls.seeds import PatternList, Seed, SeedWords, parse_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from scrapy import Request
    from scrapy.settings import BaseSettings

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.job.codec import RequestCodec
    from krowlspider.job.hooking.link_hooks import LinkBatch, LinkHooks, Priorities
    from krowlspider.job.nodes.node import Node
    from krowlspider.job.site_policies import SitePolicies

logger = logging.getLogger(__name__)

# Above the priority of pages: what a page needs is fetched before the next page of its host.
REQUISITE_PRIORITY = 1
# Seeds of earlier starts that are looked at together.
_RECALLED = 200
# Seeds of one host that fall back to http at once, some ms of work. The next try finds the rest.
_FALL_BACK = 100
# Requisites queued for one host in one run: pages of other sites must not fill its queue.
REQUISITES_MAX = 100_000
# Hosts whose requisites are counted; the one that was counted least recently is forgotten first.
_BUDGETS = 16_384
# Seconds of one step of `promote_known`.
_STEP = 0.02


class RequisiteBudget:
    """Counts the requisites of each host that are queued in this run, at most ``most``."""

    def __init__(self, most: int = REQUISITES_MAX):
        self._most = most
        self._counts: OrderedDict[str, int] = OrderedDict()

    def take(self, host: str) -> bool:
        """Count one more requisite of a host; return False, with nothing counted, if it has no
        room."""
        count = self._counts.pop(host, 0)
        has_room = count < self._most
        self._counts[host] = count + has_room
        if len(self._counts) > _BUDGETS:
            self._counts.popitem(last=False)
        return has_room


class Intake:
    """Decides what happens to each discovered URL, and queues it or sends it to its owner.

    ``scope`` decides which URLs are queued. ``exclusions`` decide which URLs are not fetched, even
    if they are queued already. ``identify`` returns the identity of a request for a normalised URL.
    ``fail`` is called with an error of the frontier, ``wake`` when there is something new to fetch.
    ``hooks`` are asked about links; None without KROWL_HOOKS.
    """

    def __init__(
        self,
        frontier: Frontier,
        hasher: IdentityHasher,
        codec: RequestCodec,
        settings: BaseSettings,
        *,
        node: Node | None,
        policies: SitePolicies | None = None,
        hooks: LinkHooks | None = None,
        fail: Callable[[Exception], None],
        identify: Callable[[Request, str], bytes],
        wake: Callable[[], None],
    ):
        self._frontier = frontier
        self._hasher = hasher
        self._fail = fail
        self._linkable = frontier.linked_ports.admitted
        self._node = node
        self._policies = policies
        self._hooks = hooks
        self._codec = codec
        self.identify = identify
        self.wake = wake
        self._keeps_via = "metadata" in settings.getlist("KROWL_WARC_ALSO")
        self._seeds = None if frontier.pages is None else frontier.pages.seeds
        self.exclusions = PatternList()
        self.seed_redirects = SeedRedirects()
        self.requisite_budget = RequisiteBudget()
        self.scope = Scope(ScopeRules(), max_url_length=settings.getint("URLLENGTH_LIMIT"))
        self._known_seeds: deque[Candidate] = deque()

    # --- rules ---

    def knows(self, keys: Sequence[bytes], host_at: Callable[[int], str]) -> list[bool]:
        """Return which identities are known, as `Frontier.knows`.

        :raises StoreError: the store cannot be read; the crawl has failed
        """
        try:
            return self._frontier.knows(keys, host_at)
        except STORE_ERRORS as error:
            self._fail(error)
            raise

    def refusal(
        self,
        url: str,
        host: str,
        depth: int,
        via: str | None,
        *,
        is_stray: bool,
        is_requisite: bool = False,
    ) -> str | None:
        """Return the reason, in one word, why a normalised URL is not queued; None if it may be.

        ``via`` is the host of the page that links to it. ``is_stray`` is true if a page named the
        URL and no person did: then `LinkedPorts` must admit a host with an explicit port. A
        requisite may have any extension.

        :raises StoreError: as of `add`
        """
        return self._refusals(
            [url],
            [host],
            depth,
            via,
            is_stray=is_stray,
            is_requisite=is_requisite,
            any_extension=is_requisite,
        )[0]

    def _refusals(
        self,
        urls: Sequence[str],
        hosts: Sequence[str],
        depth: int,
        via: str | None,
        *,
        is_stray: bool,
        is_requisite: bool,
        any_extension: bool,
        page: str = "",
        scope: Scope | None = None,
    ) -> list[str | None]:
        """Return what `refusal` does for each of the URLs of one page, whose URL is ``page``.
        ``scope`` stands in for the crawl's."""
        policies = self._policies
        reach = policies.reach(page) if policies is not None and page else None
        scope = scope or self.scope
        reasons = scope.refusals(urls, hosts, depth, via, is_requisite=is_requisite, reach=reach)
        if policies is not None and urls:
            # A sheet's own depth may be more than the crawl's.
            if is_beyond := reasons[0] == "depth":
                reasons = scope.refusals(
                    urls, hosts, 0, via, is_requisite=is_requisite, reach=reach
                )
            reasons = policies.refusals(
                urls,
                hosts,
                depth,
                reasons,
                is_given=via is None and not (depth or is_stray),
                is_requisite=is_requisite,
                is_beyond=is_beyond,
            )
        if any_extension:
            reasons = [None if reason == "extension" else reason for reason in reasons]
        if is_stray:
            linkable = self._linkable
            reasons = [
                "port"
                if reason is None
                and ":" in host
                and host not in linkable
                and not self._may_link(host)
                else reason
                for reason, host in zip(reasons, hosts, strict=True)
            ]
        if self.exclusions.patterns:
            reasons = [
                "exclude" if reason is None and self.exclusions.match(url) else reason
                for reason, url in zip(reasons, urls, strict=True)
            ]
        return reasons

    def _may_link(self, host: str) -> bool:
        try:
            return self._frontier.linked_ports.admits(host)
        except STORE_ERRORS as error:
            self._fail(error)
            raise

    def count_dropped(self, reason: str, count: int = 1) -> None:
        """Count URLs that are not queued, under their reason."""
        self._frontier.counters[f"dropped/{reason}"] += count

    # --- incoming URLs ---

    def request(
        self, request: Request, url: str, entry: Entry, *, is_decided: bool = False
    ) -> bool:
        """Queue a request durably, or send it to the node that owns its host.

        Return False if it is known or refused. ``url`` is its normalised URL. ``is_decided``: the
        hooks of the node that has sent it have decided about it.

        :raises StoreError: as of `add`
        """
        host = host_of(url)
        is_stray = entry.redirects > 0
        if reason := self.refusal(url, host, entry.depth, None, is_stray=is_stray):
            self.count_dropped(reason)
            return False
        # Scrapy fetches start requests even when known. All nodes of a cluster have the same ones,
        # so the cluster fetches each once.
        in_common = self._node is not None and request.meta.get("is_start_request", False)
        always = request.dont_filter and not in_common
        key = None if always else self.identify(request, url)
        hooks = self._hooks
        if hooks is not None and hooks.filter is not None and not (is_decided or entry.file):
            is_known = key is not None and self._is_known_anywhere(key, host)
            wish = hooks.decide(entry, host, is_known=is_known)
            if is_known and (in_common or wish is not True):
                return False
            if wish is False:
                self.count_dropped(HOOK)
                return False
            key = None if is_known else key
        if key is None and not entry.request:
            # It may have a row: its fetch is not the first.
            entry.request = UNMARKED
        priority = REQUISITE_PRIORITY if entry.is_requisite else request.priority
        candidate = Candidate(host, key, entry, priority)
        if self._node is not None and (owner := self._node.foreign_owner(host)) is not None:
            return self._send_request(owner, candidate)
        if key is not None and self.knows((key,), lambda _: host)[0]:
            return False
        if entry.is_requisite and not self.requisite_budget.take(host):
            self.count_dropped("requisite_budget")
            return False
        is_given = not entry.depth and request.meta.get("is_start_request", False)
        return bool(self.add([candidate], is_exempt=is_given))

    def discover(  # noqa: PLR0912, PLR0915 - one pass for each page: each call costs
        self,
        urls: Iterable[str],
        *,
        depth: int,
        via: str | None = None,
        page: str = "",
        hop: str = "L",
        path: str = "",
        seed: str = "",
        redirects: int = 0,
        chain: tuple[str, ...] = (),
        bare: frozenset[str] = frozenset(),
        request: Callable[[str], Request] | None = None,
        is_first: bool = False,
        again: bool = False,
        states: Mapping[str, str] | None = None,
    ) -> int:
        """Queue normalised URLs found on a page, or given as seeds; return how many were new.

        KROWL_HOST_QUEUE_MAX does not hold for seeds and the URLs of sitemaps, KROWL_FRONTIER_MAX
        and the share of a domain not for seeds.

        ``via`` is the host of the page, ``page`` its URL, ``path`` its path from the seed, and
        ``hop`` the letter of the next hop, as in `Entry`. ``page``, ``path`` and ``hop`` are kept
        if KROWL_WARC_ALSO has metadata. ``seed`` is the URL of that seed, which may be the page
        itself; it is kept with rows of pages. URLs in ``bare`` are seeds without a scheme, which
        fall back to http. ``request`` makes the request of each URL that is no plain page; such a
        URL may have any file extension. ``is_first``: they are popped before the other URLs of
        their host, and rules about hosts and ``allow``, which say what pages are followed, do not
        apply.

        ``chain`` has the URLs whose redirects led here. If the last of them has the same identity,
        as with a session id, the identity is known though the page was not fetched. So the URL is
        queued anyway. So is one in the chain itself, which comes back with a cookie, and with
        ``again`` any URL.

        A seed that is queued as a link already is for `promote_known`; the only one of a call is
        promoted at once.

        ``states`` has what hooks keep with some of the URLs, as JSON.

        :raises StoreError: as of `add`
        """
        host_in = host_finder(page)
        are_links = bool(page) and not (chain or request)
        urls = self._rewritten(urls, host_in, are_links=are_links)
        # In a cluster, what is known of a URL depends on its owner; hooks are asked for each URL.
        recent = (
            self._frontier.seen.recent_links
            if are_links and self._node is None and self._hooks is None and not (is_first or again)
            else None
        )
        if recent is not None and not (urls := self._frontier.without_recent(urls)):
            return 0
        found = self._hasher.keys(urls)
        owners = None if self._node is None else self._node.foreign_owners(list(map(host_in, urls)))
        itself = again or (
            bool(chain)
            and (found == self._hasher.keys(chain[-1:]) or not set(urls).isdisjoint(chain))
        )
        keys: Sequence[bytes | None] = [None] if itself else found
        known = [False] if itself else self.known_here(found, lambda at: host_in(urls[at]), owners)
        # Requisites and files are not asked about.
        hooked = (
            None
            if self._hooks is None or is_first or request is not None
            else self._hooks.batch(urls, host_in, depth=depth, page=page, states=states)
        )
        if recent is not None:
            recent.add(compress(urls, known))
        if hooked is not None:
            keys, known = hooked.wanted_again(keys, known)
        new = [at for at, is_known in enumerate(known) if not is_known]
        hosts = [host_in(urls[at]) for at in new]
        seed_key = self.key_of_seed(seed)
        words = None if self._seeds is None else self._seeds.words
        reasons = self._refusals(
            [urls[at] for at in new],
            hosts,
            depth,
            via,
            is_stray=via is not None,
            is_requisite=is_first,
            any_extension=request is not None,
            page=page,
        )
        if via is not None and not (is_first or chain or request):
            if self._policies is not None and self._seeds is not None:
                self._seeds.limits.add(seed_key, reasons)
            if words is not None:
                reasons = words.refuse(seed_key, depth, reasons)
        if hooked is not None:
            self._ask_hooks(hooked, [urls[at] for at in new], hosts, reasons, via)
        # A redirect has the depth of the URL that it comes from.
        are_seeds = via is None or (bool(chain) and not depth and request is None)
        priority = (
            SEED_PRIORITY + is_first
            if are_seeds or is_first
            else 0
            if words is None
            else words.priority(seed_key)
        )
        keeps = bool(page) and (self._keeps_via or hooked is not None)
        is_plain = not (redirects or bare or chain)
        if priority == SEED_PRIORITY and len(new) < len(urls):
            self.note_known(
                [
                    Candidate(
                        host_in(urls[at]),
                        found[at],
                        Entry(
                            urls[at],
                            depth,
                            redirects,
                            bare=urls[at] in bare,
                            chain=chain,
                            seed=seed_key,
                        ),
                        priority,
                    )
                    for at, is_known in enumerate(known)
                    if is_known and (owners is None or owners[at] is None)
                ],
                page if keeps else "",
                f"{path}{hop}",
            )
        policies = self._policies
        ranks: Priorities | None = (
            policies if policies is not None and policies.gives_priorities else None
        )
        ranks = ranks if hooked is None else hooked.ranks(ranks)
        candidates, foreign = list[Candidate](), list[Foreign]()
        for at, host, reason in zip(new, hosts, reasons, strict=True):
            if reason:
                self.count_dropped(reason)
                if are_seeds:
                    self.refuse_seed(urls[at], reason, chain)
                continue
            url, identity = urls[at], keys[at]
            own = 0 if ranks is None else ranks.priority(url, host)
            level = priority if priority >= SEED_PRIORITY else priority + own
            entry = (
                self._codec.entry(request(url), url)
                if request
                else Entry(url, depth)
                if is_plain
                else Entry(url, depth, redirects, bare=url in bare, chain=chain)
            )
            entry.seed = seed_key
            if keeps:
                entry.via, entry.path = page, f"{path}{hop}"[-HOPS_MAX:]
            if hooked is not None:
                hooked.dress(entry)
            if owners is not None and (owner := owners[at]) is not None:
                # Its owner knows a seed, and gives it its place.
                foreign += self.outgoing(
                    owner,
                    host,
                    identity,
                    entry,
                    own if level >= SEED_PRIORITY else level,
                    always=hooked is not None and url in hooked.wanted,
                )
                if are_seeds:
                    self._frontier.schedule.seed_turns.sent()
                    self._note_seed(url, ELSEWHERE, chain)
            else:
                candidates.append(Candidate(host, identity, entry, level))
        is_exempt = via is None or hop == "M" or request is not None
        added = self.add(candidates, foreign, via=via or "", is_exempt=is_exempt, has_lines=True)
        if added:
            self.wake()
        return added

    def at_once(self, most: int) -> int:
        """Return how many URLs to `discover` in one turn of the event loop, ``most`` without
        hooks."""
        return most if self._hooks is None else min(most, self._hooks.at_once)

    def _ask_hooks(
        self,
        hooked: LinkBatch,
        urls: Sequence[str],
        hosts: Sequence[str],
        reasons: list[str | None],
        via: str | None,
    ) -> None:
        """Change the reasons of new URLs as hooks want it. What the hook `scope` lifts is refused
        by all other rules as before."""
        if lifted := hooked.lifted(urls, reasons):
            found = self._refusals(
                [urls[at] for at in lifted],
                [hosts[at] for at in lifted],
                hooked.depth,
                via,
                is_stray=via is not None,
                is_requisite=False,
                any_extension=False,
                scope=self.scope.without_rules(),
            )
            for at, reason in zip(lifted, found, strict=True):
                reasons[at] = reason
        hooked.filter(urls, reasons)

    def _rewritten(
        self, urls: Iterable[str], host_in: Callable[[str], str], *, are_links: bool
    ) -> list[str]:
        """Return what sheets have fetched in place of links. Seeds, and the targets of redirects,
        stay as a person or the site has given them."""
        if self._policies is None or not are_links:
            return list(urls)
        return self._policies.rewritten(list(urls), host_in)

    def await_seeds(self) -> None:
        """Seeds are coming, until `have_seeds`: while pages are limited, other pages wait."""
        self._frontier.schedule.seed_turns.begin()

    def have_seeds(self) -> None:
        """All seeds are queued."""
        self._frontier.schedule.seed_turns.end()
        self.wake()

    def begin_seeds(self, source: str) -> None:
        """Begin to queue the seeds of a source by `plant`; end with `end_seeds`."""
        self._frontier.seeds.begin(source)

    def end_seeds(self, source: str, *, after: int | None) -> None:
        """End a source. Its last line was number ``after``; None: it was not read to its end."""
        if after is not None:
            self._frontier.seeds.end(source, after=after)

    def recall_seeds(self) -> Iterator[None]:
        """Put hosts with seeds that were queued before this start before those without. Each step
        is short."""
        schedule = self._frontier.schedule
        urls = self._frontier.seeds.unfinished()
        while names := dict.fromkeys(map(host_of, islice(urls, _RECALLED))):
            schedule.cache.evict()
            schedule.cache.read(names)
            for name in names:
                schedule.put_first(schedule.cache.hosts[name])
            yield

    def plant(
        self,
        source: str,
        lines: list[SeedLine],
        *,
        after: int,
        states: Mapping[str, str] | None = None,
    ) -> int:
        """Queue the seeds of lines of a source, as `SeedTable.add`; return how many were new.
        ``states`` is as in `discover`.

        :raises StoreError: as of `add`
        """
        bare = frozenset(line.url for line in lines if line.bare)
        urls = [line.url for line in lines if line.url]
        self.give_words([(line.url, line.words) for line in lines if line.url])
        new = self.discover(urls, depth=0, bare=bare, states=states)
        try:
            self._frontier.seeds.add(source, lines, after=after)
        except STORE_ERRORS as error:
            self._fail(error)
            raise
        return new

    def give(self, seeds: Sequence[Seed], states: Mapping[str, str] | None = None) -> int:
        """Queue seeds that come while the crawl runs, each with a line in the table of seeds;
        return how many were new here. ``states`` is as in `discover`.

        :raises StoreError: as of `add`
        """
        urls = [seed.url for seed in seeds]
        self.give_words([(seed.url, seed.words) for seed in seeds if seed.words])
        bare = frozenset(seed.url for seed in seeds if seed.bare)
        new = self.discover(urls, depth=0, bare=bare, states=states)
        try:
            self._frontier.seeds.give(urls)
        except STORE_ERRORS as error:
            self._fail(error)
            raise
        return new

    def give_words(self, given: list[tuple[str, SeedWords | None]]) -> None:
        """Set the words of seeds, before these are queued.

        :raises StoreError: as of `add`
        """
        names = self._seeds
        if names is None or (names.words is None and not any(words for _, words in given)):
            return
        try:
            names.begin_words().give(given)
        except STORE_ERRORS as error:
            self._fail(error)
            raise

    def learn_words(self, url: str, text: str) -> None:
        """Keep the words of a seed, as JSON, that another node has sent.

        :raises StoreError: as of `add`
        """
        if self._seeds is None:
            return
        try:
            self._seeds.begin_words().learn(url, parse_words(text))
        except STORE_ERRORS as error:
            self._fail(error)
            raise

    def give_sent(self, entries: Sequence[Entry]) -> None:
        """Note entries that were sent to their owners while the crawl runs, as `give`: those that
        are seeds.

        :raises StoreError: as of `add`
        """
        try:
            self._frontier.seeds.sent(entries)
        except STORE_ERRORS as error:
            self._fail(error)
            raise

    def refuse_seed(self, url: str, reason: str, chain: tuple[str, ...]) -> None:
        """Note why a seed, or the last of a chain of redirects from one, is not queued.

        :raises StoreError: as of `add`
        """
        if chain:
            self.seed_redirects.refuse(chain[0], url, reason)
        self._note_seed(url, reason, chain)

    def note_known(self, seeds: list[Candidate], page: str = "", path: str = "") -> None:
        """Note seeds that are known here, for `promote_known`; do that for a single one."""
        if page:
            for seed in seeds:
                seed.entry.via, seed.entry.path = page, path[-HOPS_MAX:]
        self._known_seeds.extend(seeds)
        if len(seeds) == 1:
            for _ in self.promote_known():
                pass

    def promote_known(self) -> Iterator[None]:
        """Have those known seeds fetched first that are queued as links, and note the others. Each
        step is short.

        :raises StoreError: as of `add`
        """
        begun = self._frontier.now()
        while self._known_seeds:
            seed = self._known_seeds.popleft()
            try:
                if self._frontier.promote(seed, self._hasher.key):
                    self.wake()
                elif not self._frontier.seeds.follows(seed.entry.url):
                    self._note_seed(seed.entry.url, KNOWN, seed.entry.chain)
            except STORE_ERRORS as error:
                self._fail(error)
                raise
            if self._frontier.now() >= begun + _STEP:
                yield
                begun = self._frontier.now()

    def key_of_seed(self, url: str) -> bytes:
        """Return the key of a seed; empty where seeds are not kept.

        :raises StoreError: as of `add`
        """
        try:
            return b"" if self._seeds is None else self._seeds.key_of(url)
        except STORE_ERRORS as error:
            self._fail(error)
            raise

    def _note_seed(self, url: str, outcome: str, chain: tuple[str, ...] = ()) -> None:
        """Note a seed that is not queued here, with its outcome."""
        try:
            self._frontier.seeds.refused([url], outcome, chain[-1] if chain else "")
        except STORE_ERRORS as error:
            self._fail(error)
            raise

    def follow_from(self, url: str) -> None:
        """Follow where a seed goes on, as `SeedTable.follow_from`.

        :raises StoreError: as of `add`
        """
        try:
            self._frontier.seeds.follow_from(url)
        except STORE_ERRORS as error:
            self._fail(error)
            raise

    def end_seed_at(self, url: str, location: bytes, reason: str) -> None:
        """Note why a redirect of a seed, or of where it goes on, is not followed."""
        target = normalise(escape_octets(location), url)
        if target is not None and not self._frontier.seeds.follows(target):
            self._note_seed(target, reason, (url,))

    def fall_back(self, entry: Entry) -> None:
        """Queue the http URL of a seed that was given without a scheme and has no https."""
        url = entry.url.replace("https:", "http:", 1)
        states = {url: entry.state} if entry.state else None
        self.discover(
            [url], depth=entry.depth, seed=entry.url, bare=frozenset([url]), states=states
        )

    def fall_back_at(self, host: Host) -> None:
        """Queue the http URLs in place of the next pages of a host, whose https robots.txt has
        failed: all that are seeds without a scheme, up to the first other page."""
        queues, leases = self._frontier.queues, list[Lease]()
        while len(leases) < _FALL_BACK and (lease := queues.pop(host)) is not None:
            authority = authority_of(lease.entry.url)
            if leases and not (
                lease.entry.may_fall_back and authority == authority_of(leases[0].entry.url)
            ):
                queues.unpop(lease)
                break
            leases.append(lease)
        for each in leases:
            self.fall_back(each.entry)
            self._frontier.acknowledge(each, FELL_BACK)

    def add(
        self,
        candidates: list[Candidate],
        foreign: Sequence[Foreign] = (),
        decided: Sequence[bytes] = (),
        via: str = "",
        *,
        is_exempt: bool = False,
        has_lines: bool = False,
    ) -> int:
        """Queue candidates that are not known, as `Frontier.queue`; return how many were new.

        :raises StoreError: the store cannot be written; the crawl has failed and acknowledges
            nothing any more, not even the page that named the URLs
        """
        try:
            added = self._frontier.queue(
                candidates, foreign, decided, via, is_exempt=is_exempt, has_lines=has_lines
            )
        except STORE_ERRORS as error:
            self._fail(error)
            raise
        if self._hooks is not None:
            self._hooks.tell()
        return added

    def _is_known_anywhere(self, key: bytes, host: str) -> bool:
        owners = None if self._node is None else self._node.foreign_owners([host])
        return self.known_here([key], lambda _: host, owners)[0]

    def known_here(
        self, keys: list[bytes], host_at: Callable[[int], str], owners: list[str | None] | None
    ) -> list[bool]:
        """Return which identities are known to this node.

        A URL of another node's host is known if it was sent to its owner.
        """
        if owners is None or not any(owners):
            return self.knows(keys, host_at)
        mark_names: dict[int, str] = {}
        keys = list(keys)
        for at, owner in enumerate(owners):
            if owner is not None:
                mark_names[at], keys[at] = foreign_mark(owner, keys[at])
        return self.knows(keys, lambda at: mark_names.get(at) or host_at(at))

    # --- outgoing URLs ---

    def outgoing(
        self,
        owner: str,
        host: str,
        identity: bytes | None,
        entry: Entry,
        priority: int = 0,
        *,
        always: bool = False,
    ) -> list[Foreign]:
        """Return a URL as a message to its owner; an empty list if it cannot be sent. ``always`` is
        as in `RequestCodec.message`."""
        if len(entry.url) > URL_MAX:
            self.count_dropped("length")
            return []
        if len(entry.via) > URL_MAX:
            entry.via = entry.path = ""
        try:
            message = self._codec.message(entry, priority, always=always)
            return [Foreign(owner, host, identity, message)]
        except ValueError:
            self.count_dropped("unserializable")
            return []

    def _send_request(self, owner: str, candidate: Candidate) -> bool:
        """Put a request into the outbox; return False if it is known there or cannot be sent."""
        entry, key = candidate.entry, candidate.key
        try:
            message = self._codec.message(entry, candidate.priority, always=key is None)
        except ValueError as error:
            logger.error("%s cannot be sent to node %s, which owns it: %s", entry.url, owner, error)
            self.count_dropped("unserializable")
            return False
        counters = self._frontier.counters
        before = counters["foreign"]
        self.add([], [Foreign(owner, candidate.host, key, message)])
        return counters["foreign"] > before


def host_finder(page: str) -> Callable[[str], str]:
    """Return `host_of`, made faster for links to the host of ``page``, as most links are."""
    if not page:
        return host_of
    own, here = host_of(page), page[: path_start(page) + 1]
    return lambda url: own if url.startswith(here) else host_of(url)
