"""The hooks that decide about links: scope, filter, priority, and what is queued."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from krowlspider.frontier.entry import UNMARKED
from krowlspider.frontier.entry_queues import HOOK
from krowlspider.hooks.words import HookError, Url, state_of, state_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.entry_queues import Candidate
    from krowlspider.hooks.calls import Call

# The rules of the spider, which `Hooks.scope` may lift. All other refusals stand.
SCOPE = frozenset({"allow", "deny", "depth", "domain", "host"})
# Priorities, as those of sheets.
_PRIORITY_MAX = 999
# Seconds that the hooks of one batch of links take as a rule, and the most links of a batch.
_BATCH, _LINKS_MAX = 0.02, 500
# Before anything is known of their time.
_FIRST = 25
# Weight of the newest batch in the average.
_ALPHA = 0.3


class Priorities(Protocol):
    """What gives links their priority."""

    def priority(self, url: str, host: str) -> int: ...


class LinkHooks:
    """Calls the hooks for links; each is None if it is not overridden.

    ``at_once`` is how many links a batch may have, so that the event loop goes on.
    """

    def __init__(
        self,
        *,
        scope: Call | None,
        filter_: Call | None,
        priority: Call | None,
        enqueued: Call | None,
    ):
        self.scope = scope
        self.filter = filter_
        self.priority = priority
        self.at_once = _FIRST
        self._enqueued = enqueued
        self._taken: list[Candidate] = []
        self._average = 0.0

    def batch(
        self,
        urls: Sequence[str],
        host_of: Callable[[str], str],
        *,
        depth: int,
        page: str,
        states: Mapping[str, str] | None,
    ) -> LinkBatch:
        """Return the links of one page, or seeds without ``page``. ``states`` has their states as
        JSON, by URL."""
        return LinkBatch(self, urls, host_of, depth=depth, page=page, states=states or {})

    def decide(self, entry: Entry, host: str, *, is_known: bool) -> bool | None:
        """Return the answer of `Hooks.filter`, which is overridden, about a request of an ordinary
        spider. Its scope and its priority are in the spider itself."""
        states = {entry.url: entry.state}
        one = LinkBatch(
            self, [entry.url], lambda _: host, depth=entry.depth, page="", states=states
        )
        answer = one.ask(entry.url, is_known=is_known)
        entry.state = one.state(entry.url)
        return answer

    def note(self, candidates: list[Candidate]) -> None:
        """Remember what goes into the queue, for `tell`."""
        if self._enqueued is not None:
            self._taken += candidates

    def tell(self) -> None:
        """Call `Hooks.enqueued` with what `note` has taken, as it is written."""
        if self._enqueued is None:
            return
        taken, self._taken = self._taken, []
        begun = perf_counter()
        for each in taken:
            entry = each.entry
            if not entry.file:
                url = Url(entry.url, each.host, entry.depth, entry.via, state_of(entry.state))
                self._enqueued.now(url)
        self.took(perf_counter() - begun, len(taken))

    def took(self, seconds: float, links: int) -> None:
        """Learn how long the hooks of a batch have taken."""
        if links:
            self._average += _ALPHA * (seconds / links - self._average)
            fitting = int(_BATCH / max(self._average, 1e-9))
            self.at_once = max(1, min(_LINKS_MAX, fitting))


class LinkBatch:
    """URLs that are decided about together."""

    def __init__(
        self,
        hooks: LinkHooks,
        urls: Sequence[str],
        host_of: Callable[[str], str],
        *,
        depth: int,
        page: str,
        states: Mapping[str, str],
    ):
        self._hooks = hooks
        self._urls = urls
        self._host_of = host_of
        self.depth = depth
        self._page = page
        self._states = states
        self._links: dict[str, Url] = {}
        self.wanted: frozenset[str] = frozenset()
        self._policies: Priorities | None = None

    @property
    def are_links(self) -> bool:
        """Return whether pages name the URLs. Seeds are a person's: their scope and their priority
        are not asked about."""
        return bool(self._page or self.depth)

    def _link(self, url: str) -> Url:
        link = self._links.get(url)
        if link is None:
            state = state_of(self._states.get(url, ""))
            link = Url(url, self._host_of(url), self.depth, self._page, state)
            self._links[url] = link
        return link

    def ask(self, url: str, *, is_known: bool) -> bool | None:
        """Return the answer of `Hooks.filter`, which is overridden."""
        call = self._hooks.filter
        assert call is not None
        return call.verdict(call.now(self._link(url), is_known))

    def wanted_again(
        self, keys: Sequence[bytes | None], known: list[bool]
    ) -> tuple[Sequence[bytes | None], list[bool]]:
        """Ask `Hooks.filter` about the known URLs. Return the identities, None for those that it
        wants again, and which URLs are known besides."""
        if self._hooks.filter is None or not any(known):
            return keys, known
        begun = perf_counter()
        asked = [url for url, is_known in zip(self._urls, known, strict=True) if is_known]
        self.wanted = frozenset(url for url in asked if self.ask(url, is_known=True) is True)
        self._hooks.took(perf_counter() - begun, len(asked))
        if not self.wanted:
            return keys, known
        again = [url in self.wanted for url in self._urls]
        return (
            [None if is_wanted else key for key, is_wanted in zip(keys, again, strict=True)],
            [is_known and not wanted for is_known, wanted in zip(known, again, strict=True)],
        )

    def dress(self, entry: Entry) -> None:
        """Give an entry its state, and the mark of one that is fetched again."""
        entry.state = self.state(entry.url)
        if entry.url in self.wanted:
            # It may have a row: its fetch is not the first.
            entry.request = UNMARKED

    def lifted(self, urls: Sequence[str], reasons: list[str | None]) -> list[int]:
        """Ask `Hooks.scope`; put HOOK among the reasons of what it refuses. Return the indexes of
        those URLs whose refusal by the spider's scope it lifts."""
        call = self._hooks.scope
        if call is None or not self.are_links:
            return []
        begun, asked = perf_counter(), 0
        found = []
        for at, (url, reason) in enumerate(zip(urls, reasons, strict=True)):
            if reason is None or reason in SCOPE:
                asked += 1
                answer = call.verdict(call.now(self._link(url), reason))
                if answer is False:
                    reasons[at] = HOOK
                elif answer is True and reason is not None:
                    found.append(at)
        self._hooks.took(perf_counter() - begun, asked)
        return found

    def filter(self, urls: Sequence[str], reasons: list[str | None]) -> None:
        """Put HOOK among the reasons of those new URLs that `Hooks.filter` does not want."""
        if self._hooks.filter is None:
            return
        begun, asked = perf_counter(), 0
        for at, (url, reason) in enumerate(zip(urls, reasons, strict=True)):
            if reason is None and url not in self.wanted:
                asked += 1
                if self.ask(url, is_known=False) is False:
                    reasons[at] = HOOK
        self._hooks.took(perf_counter() - begun, asked)

    def ranks(self, policies: Priorities | None) -> Priorities | None:
        """Return what has the priorities of these links: this batch, if `Hooks.priority` is
        overridden."""
        if self._hooks.priority is None or not self.are_links:
            return policies
        self._policies = policies
        return self

    def priority(self, url: str, host: str) -> int:
        """Return the priority of a link: that of the hook and that of the sheets together."""
        own = 0 if self._policies is None else self._policies.priority(url, host)
        call = self._hooks.priority
        assert call is not None
        answer = call.now(self._link(url))
        if answer is None:
            return own
        if type(answer) is not int or not -_PRIORITY_MAX <= answer <= _PRIORITY_MAX:
            call.failed(HookError(f"{answer!r} is no priority from -999 to 999"))
            return own
        return max(-_PRIORITY_MAX, min(own + answer, _PRIORITY_MAX))

    def state(self, url: str) -> str:
        """Return the state of a URL as JSON. One that cannot be kept leaves the former one."""
        former = self._states.get(url, "")
        link = self._links.get(url)
        if link is None:
            return former
        try:
            return state_text(link.state, url)
        except HookError as error:
            if self._hooks.filter is not None:
                self._hooks.filter.failed(error)
            return former
