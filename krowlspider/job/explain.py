"""Explain where one URL is in a crawl, and why it is not being fetched."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from krowlspider.archive.cdxj import REVISIT
from krowlspider.errors import counted, duration
from krowlspider.frontier.admin.view import LOOKED_AT, Reason
from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.entry_queues import FELL_BACK
from krowlspider.frontier.pages.rows import PageRows
from krowlspider.frontier.quotas import Quotas
from krowlspider.frontier.robots.gate import RobotsGate, Verdict
from krowlspider.frontier.seed_table import followed_for, is_of_another_node, outcome_of
from krowlspider.frontier.shares import address_in
from krowlspider.frontier.store.schema import poison_prefix, robots_key, split_queue_key
from krowlspider.frontier.store.store import Store, entries
from krowlspider.job.meters import REFUSED, words_of_drop
from krowlspider.job.status import by_last_part
from krowlspider.policies.keys import KEYS, REWRITES, Policy
from krowlspider.policies.rewrites import rewritten
from krowlspider.politeness.gemini import prefix_line
from krowlspider.politeness.robots import RobotsRecord, deciding_line
from krowlspider.urls.canonical import (
    IdentityHasher,
    authority_of,
    host_of,
    normalise,
    requisite_identity,
)
from krowlspider.urls.gemini import URL_MAX, accepts_gemini, is_gemini
from krowlspider.urls.seeds import BadSeed, PatternList, parse_seed

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Sequence

    from krowlspider.archive.cdxj import IndexLine
    from krowlspider.frontier.frontier import Acknowledged
    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.pages.row import PageRow
    from krowlspider.policies.sheets import HostPolicies, Policies
    from krowlspider.urls.scope import Scope

# Rules whose refusals depend on the page with the link, or on the time. They are counted, and not
# noted for each URL.
_COUNTED = {
    "depth": "max_depth",
    "sheet_depth": "depth of a sheet",
    "host": "same_host",
    "domain": "same_domain",
    "port": "KROWL_PORTS",
    "frontier": "KROWL_FRONTIER_MAX",
    "domain_share": "KROWL_FRONTIER_MAX",
    "domain_budget": "KROWL_DOMAIN_BUDGET",
    "seed_depth": "depth of its seed",
    "seed_pages": "max_pages of its seed",
}
# Reasons of sheets, each with the key that decides.
_KEY_OF = {
    **{f"sheet_{key}": key for key in ("depth", "exclude", "include")},
    **{key: key for key in ("max_pages", "max_bytes", "max_seconds")},
}

# States of a URL that is not known, and most reasons that are named.
_NOT_FOUND = frozenset({"unknown", "refused"})
_NO_HTTPS = "fell back"
_FELL_BACK = (_NO_HTTPS, "Its host has no https: the seed goes on with its http URL.", "")
_REASONS = 5
# Characters of a text that is no URL which its error shows.
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a URL is, and why it is not being fetched.

    - ``state``: invalid, foreign, in flight, queued, set aside, fetched, fell back, dropped,
      refused, unknown.
    - ``why``: the answer in words; ``setting``: the setting or the spider's argument that decides,
      "" for none.
    - ``ahead``: entries of its host's queue before it; None if it is not queued. ``tries``: failed
      tries so far.
    - ``robots``: the line of robots.txt that decides, with its number; "" if no rule matches.
    - ``captures``: how many captures the indexes of the archive have of it.
    - ``owner``: the other node of the cluster that owns its host; "" if there is none.
    - ``page``: what its row says, in words; "" without one. ``next_fetch``: when the schedule
      fetches it again, as in an ISO date; "" without a plan.
    - ``sheets``: the sheet and the line that decide each key of a policy, as in
      ``delay = 5.0: sheet news, line 12``.
    """

    url: str
    state: str
    why: str
    setting: str = ""
    host: str = ""
    ahead: int | None = None
    tries: int = 0
    robots: str = ""
    captures: int = 0
    owner: str = ""
    page: str = ""
    next_fetch: str = ""
    sheets: list[str] = field(default_factory=list)


class _Place(NamedTuple):
    """A queue entry: entries before it, whether it is leased, and itself."""

    ahead: int
    leased: bool
    entry: Entry


class Explainer(Struct, frozen=True):
    """Explains the URLs of one crawl, running or stopped.

    - ``scope`` and ``exclusions`` are those of the intake; ``agent`` is the product token.
    - ``captures`` returns the captures in the archive whose URL has the key of a URL. It reads
      the ``newest`` indexes, 0 for all.
    - ``host_of_crawl`` returns a host; None if the crawl does not know it.
    - ``why`` returns why a host is not being fetched, ``is_seen`` whether an identity is known,
      ``owner`` the node that owns a host; None for this one.
    - ``counters`` has the counters of the frontier, ``wall`` is now in epoch seconds.
    - ``recent`` are the last acknowledgements, the newest last.
    - ``policies`` are the sheets in force; None without KROWL_POLICIES.
    """

    store: Store
    hasher: IdentityHasher
    scope: Scope
    exclusions: PatternList
    gate: RobotsGate
    agent: str
    obeys_robots: bool
    captures: Callable[[str], list[IndexLine]]
    host_of_crawl: Callable[[str], Host | None]
    why: Callable[[Host], Reason]
    is_seen: Callable[[str, bytes], bool]
    owner: Callable[[str], str | None]
    counters: Callable[[], Counter[str]]
    wall: Callable[[], float]
    recent: Sequence[Acknowledged] = ()
    newest: int = 0
    policies: Policies | None = None

    def explain(self, text: str) -> Explanation:
        """Return where a URL is; ``text`` need not be normalised.

        Of a text without a scheme, which is a seed too, it is the URL with https that is asked for
        first, and then the one with http, its fallback.

        :raises ArchiveError: an index of the archive is broken
        :raises OSError: the archive cannot be read
        """
        if (url := normalise(text)) is not None:
            return self._explain(url)
        if (url := _bare_url(text)) is not None:
            return self._explain_bare(text, url)
        return Explanation(
            text,
            "invalid",
            f"{text[:_SHOWN]!r} is not a URL that a crawl fetches: {_way_out(text)}.",
        )

    def _explain_bare(self, text: str, url: str) -> Explanation:
        """Return where the URL is that a seed without a scheme has led to."""
        first = self._explain(url)
        if first.state == "foreign":
            # Its owner looks at both.
            return replace(first, url=text)
        fallback = _with_http(url)
        second = self._explain(fallback)
        was_found = second.state not in _NOT_FOUND
        if first.state in _NOT_FOUND:
            if was_found:
                return replace(second, why=f"{second.why} {url} was not found.")
            if second.state != first.state:
                return first
            return replace(first, why=f"{first.why} The same holds for {fallback}.")
        if was_found and first.state in {"dropped", _NO_HTTPS}:
            # What became of the site is what became of its fallback.
            then = "is queued" if second.state == "queued" else "was asked for"
            why = f"It has no answer by https, so {fallback} {then}. {second.why}"
            return replace(second, why=why)
        return first

    def _explain(self, url: str, *, is_rewritten: bool = False) -> Explanation:
        name = host_of(url)
        if (owner := self.owner(name)) is not None:
            why = f"Node {owner} owns its host: ask there."
            return Explanation(url, "foreign", why, host=name, owner=owner)
        captures = [each for each in self.captures(url) if each.url == url]
        host = self.host_of_crawl(name)
        place = None if host is None else self._find(host, url)
        if host is not None and place is not None:
            state, why, setting = self._queued(host, place)
            if place.entry.url != url:
                why = f"{_same(place.entry.url)} {why}"
        elif not captures and (other := followed_for(self.store, url) or url) != url:
            found = self._explain(other, is_rewritten=is_rewritten)
            return replace(found, url=url, why=f"{_same(other)} {found.why}")
        else:
            state, why, setting = self._not_in_queue(url, name, host, captures)
            if state in _NOT_FOUND and not is_rewritten and (way := self._rewriting(url)):
                other, how = way
                found = self._explain(other, is_rewritten=True)
                return replace(found, url=url, why=f"{how} {found.why}")
        row = self._row(url)
        return Explanation(
            url,
            state,
            why,
            setting,
            host=name,
            ahead=None if place is None or place.leased else place.ahead,
            tries=0 if place is None else place.entry.retries + place.entry.throttling,
            robots=self._robots_line(url),
            captures=len(captures),
            page="" if row is None else _words_of(row),
            next_fetch=f"{_when(row.next_fetch):%FT%TZ}" if row and row.is_planned else "",
            sheets=[] if self.policies is None else self.policies.explained(url, _address_of(host)),
        )

    def _sheets(self, url: str) -> HostPolicies | None:
        """Return the sheets of the host of a URL; None if none covers it."""
        if self.policies is None:
            return None
        name = host_of(url)
        return self.policies.of_host(name, _address_of(self.host_of_crawl(name)))

    def _sheet(self, url: str, key: str) -> str:
        """Return the sheet and the line that decide a key; "" if no sheet does."""
        found = self._sheets(url)
        why = None if found is None else found.why(url, key)
        return "" if why is None else f"sheet {why.sheet}, line {why.line}"

    def _because(self, url: str, reason: str, words: str) -> str:
        """Return the words of a reason with the sheet and the line that decide, if one does."""
        sheet = self._sheet(url, _KEY_OF[reason]) if reason in _KEY_OF else ""
        return f"{words} ({sheet})" if sheet else words

    def _rewriting(self, url: str) -> tuple[str, str] | None:
        """Return the URL that is fetched in place of a link to this one, and why; None if it is
        this one."""
        found = self._sheets(url)
        if found is None or (other := rewritten(url, policy := found.of(url))) == url:
            return None
        keys = [
            key
            for key in KEYS
            if key in REWRITES and rewritten(url, Policy(**{key: getattr(policy, key)})) != url
        ]
        by = "; ".join(f"{key} of {self._sheet(url, key)}" for key in keys)
        return other, f"In place of a link to it, {other} is fetched, by {by}."

    def _limit_reached(self, url: str) -> str:
        """Return the limit of a sheet that is reached for a URL; "" for none."""
        if (found := self._sheets(url)) is None:
            return ""
        # Crawls without sheets do not load them.
        from krowlspider.cluster.register.port import portion_of  # noqa: PLC0415
        from krowlspider.frontier.grants import Grants  # noqa: PLC0415

        grants = Grants(self.store, self.wall, portion_of)
        quotas = Quotas(self.store, lambda _: found, self.wall, grants)
        return quotas.refusal(found, host_of(url), url)

    def _row(self, url: str) -> PageRow | None:
        return PageRows(self.store, self.hasher.key).get(url)

    def _not_in_queue(
        self, url: str, name: str, host: Host | None, captures: list[IndexLine]
    ) -> tuple[str, str, str]:
        """Return state, words and setting, as in `Explanation`."""
        if any(
            entry_of(key, value).url == url for key, value in self.store.items(poison_prefix(name))
        ):
            why = (
                "It is set aside: the process died three times while it worked on its page."
                " --export, --forget of its host and --import queue it again."
            )
            return "set aside", why, ""
        if (over := self._over(url)) is not None and (over[0] != "fetched" or not captures):
            return over
        outcome = outcome_of(self.store, url)
        if captures and outcome in {"", "done", FELL_BACK}:
            return "fetched", _fetched(captures), ""
        if outcome in {"", "done"} and self._row(url) is not None:
            why = "It was fetched. No index that was looked at has a capture of it."
            return "fetched", why, ""
        if outcome:
            return self._gone(url, host)
        if is_of_another_node(self.store, url):
            why = "It is a seed, and another node of its cluster owns its host: ask there."
            return "foreign", why, ""
        keys = self.hasher.keys([url, requisite_identity(url)])
        if any(self.is_seen(name, key) for key in keys):
            return self._gone(url, host)
        return self._unknown(url, name)

    def _find(self, host: Host, url: str) -> _Place | None:
        """Return the entry that counts as a URL, among the first of its host's queue; None if none
        is there."""
        leased = set(host.queue.leased)
        wanted = self.hasher.key(url)
        ahead = 0
        for key, value in islice(entries(self.store, host.name), LOOKED_AT):
            is_leased = split_queue_key(key) in leased
            entry = entry_of(key, value)
            if entry.url == url or (entry.is_plain and self.hasher.key(entry.url) == wanted):
                return _Place(ahead, is_leased, entry)
            ahead += not is_leased
        return None

    def _queued(self, host: Host, place: _Place) -> tuple[str, str, str]:
        verdict = self._verdict(place.entry.url)
        if place.leased and verdict is Verdict.DISALLOWED:
            why = f"It was dropped just now: {self._forbidden(place.entry.url)}."
            return "dropped", why, "ROBOTSTXT_OBEY"
        if place.leased:
            why = "Its request is under way, or its page is being read or written."
            return "in flight", why, ""
        number, of = place.ahead + 1, host.queue.queued
        where = f"It is number {number:,} of {of:,} in the queue of its host."
        if verdict is Verdict.DISALLOWED:
            why = f"{where} {self._forbidden(place.entry.url)}: it will be dropped at its turn."
            return "queued", why, "ROBOTSTXT_OBEY"
        if place.entry.may_fall_back:
            where += f" If it has no answer by https, {_with_http(place.entry.url)} is asked for."
        if (waits := place.entry.due - self.wall()) > 0:
            failed = counted(place.entry.retries + place.entry.throttling, "failed try")
            where += f" After {failed} it waits for another {duration(waits)}."
        if verdict is Verdict.UNKNOWN:
            where += " The robots.txt of its host is to be fetched before it."
        reason = self.why(host)
        return "queued", f"{where} The host: {reason.words}", reason.setting

    def _over(self, url: str) -> tuple[str, str, str] | None:
        """Return the answer about a URL that is among the last acknowledgements; else None."""
        ends = ((each, reason) for each, reason in reversed(self.recent) if each.entry.url == url)
        lease, reason = next(ends, (None, None))
        if lease is None:
            return None
        answer = lease.answer
        last = "" if answer is None else f"status {answer.status}, {counted(answer.size, 'byte')}"
        if reason is None:
            why = f"It was fetched just now{last and f': {last}'}. No index has it yet."
            return "fetched", why, ""
        if reason == FELL_BACK:
            return _FELL_BACK
        words, setting = words_of_drop(reason)
        if reason == Verdict.DISALLOWED.value:
            words = self._forbidden(url)
        words = self._because(url, reason, words)
        return "dropped", f"It was dropped just now: {words}{last and f'; {last}'}.", setting

    def _gone(self, url: str, host: Host | None) -> tuple[str, str, str]:
        """Return the answer about a known URL that is not among the entries looked at."""
        if (outcome := outcome_of(self.store, url)) == FELL_BACK:
            return _FELL_BACK
        if outcome not in {"", "done"}:
            words, setting = words_of_drop(outcome)
            words = self._because(url, outcome, words)
            return "dropped", f"It is a seed and was dropped: {words}.", setting
        if not outcome and host is not None and host.queue.pending > LOOKED_AT:
            why = (
                f"It was found. Its host has {counted(host.queue.pending, 'URL')} queued: it is not"
                f" among the first {LOOKED_AT:,}, and no more were looked at."
            )
            return "queued", why, ""
        if self._verdict(url) is Verdict.DISALLOWED:
            return "dropped", f"It was found and dropped: {self._forbidden(url)}.", "ROBOTSTXT_OBEY"
        # While a crawl runs, only some indexes are read.
        indexes = f"the newest {self.newest} indexes" if self.newest else "the indexes"
        drops = by_last_part(self.counters(), "dropped/")
        most = sorted(drops.items(), key=lambda item: (-item[1], item[0]))[:_REASONS]
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in most if count)
        why = (
            f"It was found and is not queued any more, and none of {indexes} of the archive has a"
            " capture of it. The crawl does not keep what became of each URL; its log names"
            " failures."
        )
        if reasons:
            why += f" Its drops by reason: {reasons}."
        if (limit := self._limit_reached(url)) and drops.get(limit):
            reached = self._because(url, limit, REFUSED[limit][0])
            why += f" Of its host, {reached}: what is queued beyond that is dropped at its turn."
            return "dropped", why, "KROWL_POLICIES"
        return "dropped", why, ""

    def _unknown(self, url: str, name: str) -> tuple[str, str, str]:
        """Return the answer about a URL that is not known."""
        # Of a link on the same host, so that the rules about other hosts do not count.
        reason = self.scope.refusal(url, name, 0, name)
        if reason is None and self.exclusions.match(url):
            reason = "exclude"
        if reason is None:
            reason = self._refused_by_sheet(url)
        if reason is not None:
            words, setting = REFUSED[reason]
            words = self._because(url, reason, words)
            return "refused", f"It is not queued where it is found: {words}.", setting
        if self._verdict(url) is Verdict.DISALLOWED:
            why = f"It was not found yet, and would be dropped: {self._forbidden(url)}."
            return "unknown", why, "ROBOTSTXT_OBEY"
        counters = self.counters()
        found = ((counters[f"dropped/{reason}"], rule) for reason, rule in _COUNTED.items())
        rules = {rule: count for count, rule in found if count}
        # The depth of its sheet stands in place of the crawl's.
        sheet = self._sheet(url, "depth")
        rules.pop(_COUNTED["depth" if sheet else "sheet_depth"], None)
        why = "It was not found: no page that was read has a link to it that is followed."
        if rules:
            refused = ", ".join(f"{rule} {count:,}" for rule, count in rules.items())
            why += f" Links that were refused are counted, and not kept: by {refused}."
            if _COUNTED["sheet_depth"] in rules:
                why += f" The depth of this one is set by {sheet}."
        why += " scrapy frontier --import adds it to the queue."
        return "unknown", why, ""

    def _refused_by_sheet(self, url: str) -> str | None:
        if (found := self._sheets(url)) is None:
            return None
        refused = found.of(url).refusal(url, is_page=True, is_given=False)
        return refused or self._limit_reached(url) or None

    # --- robots.txt ---

    def _verdict(self, url: str) -> Verdict:
        if not self.obeys_robots:
            return Verdict.ALLOWED
        verdict = self.gate.verdict(authority_of(url), url)
        is_refused = verdict in (Verdict.DISALLOWED, Verdict.UNDECIDED)
        return Verdict.ALLOWED if is_refused and self._is_permitted(url) else verdict

    def _is_permitted(self, url: str) -> bool:
        """Return whether a sheet overrides robots.txt for a URL."""
        found = self._sheets(url)
        return found is not None and found.of(url).robots == "override"

    def _robots_line(self, url: str) -> str:
        if (saved := self.store.get(robots_key(authority_of(url)))) is None:
            return ""
        body = RobotsRecord.decode(saved).body
        line = prefix_line(body, url) if is_gemini(url) else deciding_line(body, self.agent, url)
        return "" if line is None else f"line {line.number}: {line.text}"

    def _forbidden(self, url: str) -> str:
        line = self._robots_line(url)
        return f"{authority_of(url)}/robots.txt forbids it" + (f" by {line}" if line else "")


def _bare_url(text: str) -> str | None:
    """Return the URL of a seed without a scheme; None if the text is none."""
    try:
        seed = parse_seed(text.encode(errors="replace"))
    except BadSeed:
        return None
    return seed.url if seed is not None and seed.bare else None


def _address_of(host: Host | None) -> str:
    """Return the address at which a host was last fetched; "" if it is not known."""
    return "" if host is None else address_in(host.shares.address)


def _same(url: str) -> str:
    return f"It counts as the same as {url}."


def _way_out(text: str) -> str:
    """Return what to give instead of a text that is no URL."""
    if text[:7].lower() != "gemini:":
        return "give one with http:// or https://"
    if not accepts_gemini():
        return "give one with http:// or https://, or set KROWL_GEMINI=True"
    return (
        f"give a gemini URL with a valid name, without user name, of at most {URL_MAX:,} bytes when"
        " it is escaped"
    )


def _with_http(url: str) -> str:
    return url.replace("https:", "http:", 1)


def _words_of(row: PageRow) -> str:
    again = f"; next fetch {_when(row.next_fetch):%F %TZ}" if row.is_planned else ""
    unchanged = f", {row.unmodified:,} of them not modified" if row.unmodified else ""
    return (
        f"status {row.status}; fetched {counted(row.fetches, 'time')}{unchanged}, last at"
        f" {_when(row.last):%F %TZ}; {counted(row.changes, 'change')}{again}"
    )


def _when(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _fetched(captures: Iterable[IndexLine]) -> str:
    last = max(captures, key=lambda each: each.timestamp)
    stamp = last.timestamp
    when = f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]} {stamp[8:10]}:{stamp[10:12]}:{stamp[12:]}Z"
    kind = last.mime
    if kind == REVISIT:
        is_unmodified = last.status == "304"
        kind = "not modified" if is_unmodified else "with the same body as an earlier record"
    what = ", ".join(part for part in (f"status {last.status}" * bool(last.status), kind) if part)
    return f"It was fetched at {when}: {what}, in {last.filename}."
