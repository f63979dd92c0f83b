"""Why a crawl that ended by itself has fetched no page."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.fetch import errors
from krowlspider.frontier.entry_queues import NOT_MODIFIED
from krowlspider.frontier.robots.gate import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krowlspider.frontier.frontier import Frontier

# Causes that are named, the largest first.
_NAMED = 3
_FAILED = "krowl/fetch/failed_count/"
# Pages that count as fetched: the host answered and the crawler refused the answer, or a middleware
# refused the request.
_ANSWERED = (errors.TooLarge.kind, errors.DecodeFailed.kind, "stopped", "ignored")


class _Cause(NamedTuple):
    text: str
    way_out: str


_SEED_NAME = _Cause("unknown name", "Check the spelling of the seeds.")
_LINKED_NAME = _Cause(
    "unknown name in a link",
    "Pages named these hosts, no seed: if they exist, check the name servers of this machine.",
)
_DNS = _Cause(
    "no answer of the DNS", "Check the name servers of this machine, or set KROWL_DNS_SERVERS."
)
_ADDRESS = _Cause("address not public", errors.AddressForbidden.remedy)
_PORT = _Cause("port not allowed", errors.PortForbidden.remedy)
_CONNECTION = _Cause(
    "connection failed", "Check that the hosts are up and that this machine can reach them."
)
_PROXY = _Cause("proxy failed", "Check the URL and the credentials of the proxy, and that it runs.")
_LATER = _Cause("answers 429, 503 or, for robots.txt, 5xx", "Start the crawl again later.")
_ROBOTS = _Cause("forbidden by robots.txt", "Choose seeds that robots.txt allows.")
_SLOW = _Cause("Crawl-delay too long", "See KROWL_CRAWL_DELAY_MAX.")
_DEFERRED = _Cause(
    "URLs left on hosts that do not answer",
    "They are tried again within a day: scrapy frontier JOBDIR --host NAME says when. Start the"
    " crawl again then.",
)
_OTHER = _Cause("other failures", "The summary lists the failures by kind.")
_EXCLUDED = _Cause("excluded", "Change the file of KROWL_EXCLUDE, or the seeds.")
_LENGTH = _Cause("URL too long", "See URLLENGTH_LIMIT.")
_REFUSED = _Cause("refused for other reasons", "The summary lists the dropped URLs by reason.")

_OF_KIND = {
    **dict.fromkeys(errors.UNKNOWN_NAMES, _LINKED_NAME),
    errors.NameFailed.kind: _DNS,
    errors.NameServerFailed.kind: _DNS,
    errors.NameTimeout.kind: _DNS,
    errors.NameServersDown.kind: _DNS,
    errors.AddressForbidden.kind: _ADDRESS,
    errors.PortForbidden.kind: _PORT,
    errors.NetworkDown.kind: _CONNECTION,
    errors.ConnectRefused.kind: _CONNECTION,
    errors.ConnectTimeout.kind: _CONNECTION,
    errors.ConnectFailed.kind: _CONNECTION,
    errors.TLSFailed.kind: _CONNECTION,
    errors.ProxyFailed.kind: _PROXY,
    errors.ProxyInvalid.kind: _PROXY,
    errors.ProxyDenied.kind: _PROXY,
    errors.ProxyRefused.kind: _PROXY,
    errors.ProxyClosed.kind: _PROXY,
    errors.TargetUnreached.kind: _CONNECTION,
    errors.FirstByteTimeout.kind: _CONNECTION,
    errors.TotalTimeout.kind: _CONNECTION,
    errors.ConnectionLost.kind: _CONNECTION,
    errors.ConnectionReset.kind: _CONNECTION,
    errors.NoCloseNotify.kind: _CONNECTION,
}
_OF_VERDICT = {
    Verdict.DISALLOWED: _ROBOTS,
    Verdict.UNDECIDED: _ROBOTS,
    Verdict.TOO_SLOW: _SLOW,
}
_OF_REFUSAL = {"exclude": _EXCLUDED, "length": _LENGTH, "port": _PORT}
# The stat that counts failed look-ups of seeds.
UNKNOWN_SEEDS = "krowl/fetch/unknown_seed_count"
_DROPPED = "dropped/"
# Without these stats, the spider has made nothing.
_MADE = ("downloader/request_count", "item_scraped_count")
_NO_REQUEST = (
    "the spider made no request. Give it start_urls, or a start() that yields requests: Scrapy no"
    " longer calls start_requests()"
)


def why_nothing_was_fetched(
    frontier: Frontier, counted: Counter[str], stats: Mapping[str, int], *, alone: bool
) -> str:
    """Return the causes with their counts and the way out; "" if a page was fetched, or none was
    left to fetch.

    ``counted`` is what the frontier has counted since the start; ``stats`` are the crawl's.
    ``alone``: no node of a cluster may have sent URLs.
    """
    is_asked = counted["done"] or counted[f"done/{NOT_MODIFIED}"]
    if is_asked or any(counted[f"dropped/{reason}"] for reason in _ANSWERED):
        return ""
    causes = _causes(counted, stats)
    if not causes and frontier.deferred_queued:
        causes[_DEFERRED] = frontier.deferred_queued
    if not causes and not (frontier.counters["queued"] or frontier.counters["foreign"]):
        causes = _refusals(counted)
        is_new = not any(counted.values()) and not len(frontier.seen)
        if not causes and alone and is_new and not any(stats.get(name) for name in _MADE):
            return _NO_REQUEST
    if not causes:
        return ""
    largest = causes.most_common(_NAMED)
    listing = ", ".join(f"{cause.text}: {count:,}" for cause, count in largest)
    return f"{listing}. {largest[0][0].way_out}"


def _causes(counted: Counter[str], stats: Mapping[str, int]) -> Counter[_Cause]:
    """Return the failed fetches, with those of robots.txt, and the URLs that robots.txt refused."""
    found: Counter[_Cause] = Counter()
    for name, count in stats.items():
        if name.startswith(_FAILED):
            found[_OF_KIND.get(name.removeprefix(_FAILED), _OTHER)] += count
    seeds = stats.get(UNKNOWN_SEEDS, 0)
    found[_SEED_NAME] += seeds
    found[_LINKED_NAME] -= seeds
    found[_LATER] = stats.get("krowl/politeness/throttling_count", 0)
    for verdict, cause in _OF_VERDICT.items():
        found[cause] += counted[f"dropped/{verdict.value}"]
    return +found


def _refusals(counted: Counter[str]) -> Counter[_Cause]:
    """Return the URLs that were not queued, of a crawl that has never queued any: its seeds."""
    found: Counter[_Cause] = Counter()
    for name, count in counted.items():
        if name.startswith(_DROPPED):
            found[_OF_REFUSAL.get(name.removeprefix(_DROPPED), _REFUSED)] += count
    return found
