"""Why URLs are refused and dropped: words for people, and what decides.

Each is a clause, and the setting or the spider's argument that decides; "" for none.
"""

from __future__ import annotations

from krowlspider.frontier.robots.gate import Verdict

# Why a URL that is found would not be queued, by the word of `Scope.refusal`.
REFUSED = {
    "length": ("it is too long", "URLLENGTH_LIMIT"),
    "port": ("its port is one that links may not lead to", "KROWL_PORTS"),
    "deny": ("an expression of deny matches it", "deny"),
    "allow": ("no expression of allow matches it", "allow"),
    "path_depth": ("its path has too many segments", ""),
    "repeated_segments": ("a segment of its path is repeated too often", ""),
    "extension": ("files with this extension are skipped", "KROWL_SKIP_EXTENSIONS"),
    "calendar": ("it looks like a page of an endless calendar", ""),
    "exclude": ("an expression of KROWL_EXCLUDE matches it", "KROWL_EXCLUDE"),
}
_LATE = "its host did not answer in time, to the last try"
# Why an entry was dropped, by the reason of its acknowledgement.
_DROPPED = {
    "exclude": REFUSED["exclude"],
    "port": REFUSED["port"],
    Verdict.DISALLOWED.value: ("its robots.txt forbids it", "ROBOTSTXT_OBEY"),
    Verdict.UNDECIDED.value: ("its robots.txt takes too long to decide on it", "ROBOTSTXT_OBEY"),
    Verdict.UNREACHABLE.value: ("its robots.txt cannot be fetched", "ROBOTSTXT_OBEY"),
    Verdict.TOO_SLOW.value: (
        "its robots.txt asks for a longer delay than KROWL_CRAWL_DELAY_MAX",
        "KROWL_CRAWL_DELAY_MAX",
    ),
    "throttled": ("its host answered 429 or 503 too often", ""),
    "too_large": ("its answer is larger than DOWNLOAD_MAXSIZE", "DOWNLOAD_MAXSIZE"),
    "address_forbidden": ("its address is not of the public internet", "KROWL_ALLOW_ADDRESSES"),
    "connect_timeout": (_LATE, "KROWL_CONNECT_TIMEOUT"),
    "first_byte_timeout": (_LATE, ""),
    "total_timeout": (_LATE, "DOWNLOAD_TIMEOUT"),
    "stopped": ("a spider stopped its download", ""),
    "ignored": ("a middleware refused it", ""),
    "not_awaited": ("a pipeline or callback waited for it, which a restart has ended", ""),
    "error": ("its request ended with an error, which the log names", ""),
}


def words_of_drop(reason: str) -> tuple[str, str]:
    """Return why an entry was dropped, and what decides.

    A reason without words of its own is a kind of failure of `krowlspider.fetch.errors`.
    """
    return _DROPPED.get(reason, (f"its fetch failed to the last try ({reason})", "RETRY_TIMES"))
