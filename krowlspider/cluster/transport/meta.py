"""The bounds on what a message may carry, as anybody who reaches a Redis may have written it."""

from __future__ import annotations

from typing import Any

from krowlspider.urls.canonical import URL_MAX, normalise
from krowlspider.urls.page.requisites.requisite import Requisite

# Levels of lists and objects in meta, fewer than any later step can fail on.
MAX_NESTING = 8
MAX_DEPTH = 0xFFFF
MAX_COUNT = 0xFF

# Counts in meta, with their bounds.
_COUNTS = {"depth": MAX_DEPTH, "redirect_times": MAX_COUNT, "krowl_hops": MAX_COUNT}
# Counts of whole requests, which stay in meta.
_TRIES = ("retry_times", "throttling_times")
# Names that are used only between nodes.
_BETWEEN_NODES = frozenset({"krowl_hops", "krowl_bare", "krowl_via", "krowl_hop", "krowl_seed"})
# Names in meta by which Scrapy, its middlewares and this project decide what to do with a request:
# those that a message may carry, and those that are left out. All other names are a spider's own.
CARRIED = frozenset(
    {
        *("depth", "redirect_times", "redirect_urls", "redirect_reasons", "redirect_ttl"),
        *_TRIES,
        *("dont_redirect", "dont_retry", "handle_httpstatus_all", "handle_httpstatus_list"),
        *("cookiejar", "dont_merge_cookies", "dont_cache", "referrer_policy", "rule"),
        # Limits, which the receiver lowers to its own.
        *("download_maxsize", "download_timeout", "max_retry_times"),
        *("krowl_requisite", "krowl_sitemap", "krowl_guess", "krowl_opt_out"),
    }
)
LEFT_OUT = frozenset(
    {
        *("allow_offsite", "autothrottle_dont_adjust_delay", "bindaddress"),
        *("proxy", "_auth_proxy", "_scheme_proxy"),
        *("cache_timestamp", "cached_response", "_dont_cache", "depth_reset", "give_up_log_level"),
        *("dont_obey_robotstxt", "download_fail_on_dataloss", "download_latency", "download_slot"),
        *("download_warnsize", "ftp_local_filename", "ftp_passive", "ftp_password", "ftp_user"),
        *("http_auth_domain", "http_pass", "http_user", "is_secure", "is_start_request"),
        *("priority_adjust", "verbatim_url"),
    }
)


class BadMessage(ValueError):
    """This is no message; the text says why."""


def carried(meta: dict[str, Any]) -> dict[str, Any]:
    """Return what a request's meta may bring from outside: a spider's own data, and `CARRIED`.

    :raises BadMessage: a value is out of its bounds
    """
    for name in (*_COUNTS, *_TRIES):
        check_count(meta.get(name, 0), name, _COUNTS.get(name, MAX_COUNT))
    check_chain(meta.get("redirect_urls", []))
    match meta.get("krowl_sitemap", [1, ""]):
        case [int(level), str()] if 1 <= level <= MAX_COUNT:
            pass
        case _:
            raise BadMessage("krowl_sitemap is no level and host")
    try:
        Requisite.checked(meta.get("krowl_requisite", ["other", 0]))
    except ValueError as error:
        raise BadMessage(f"krowl_requisite: {error}") from error
    return {name: value for name, value in meta.items() if _is_carried(name)}


def carried_between_nodes(meta: dict[str, Any]) -> dict[str, Any]:
    """Return what Scrapy may see of a message's meta, which has been checked."""
    return {
        name: value for name, value in meta.items() if name in _BETWEEN_NODES or _is_carried(name)
    }


def _is_carried(name: str) -> bool:
    return name in CARRIED or not (name in LEFT_OUT or name.startswith("krowl_"))


def is_plain(value: object, levels: int = MAX_NESTING) -> bool:
    """Return whether a value comes back from JSON unchanged.

    A tuple, bytes, a date, or a number out of range does not.
    """
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if isinstance(value, int):
        return kind is int and -(2**63) <= value < 2**63
    if isinstance(value, float):
        return kind is float and value - value == 0
    if not levels:
        return False
    if isinstance(value, dict):
        return kind is dict and all(
            type(key) is str and is_plain(each, levels - 1) for key, each in value.items()
        )
    return isinstance(value, list) and all(is_plain(each, levels - 1) for each in value)


def check_url(text: Any) -> str:
    """Return the normal form of a URL.

    :raises BadMessage: it is no http or https URL, or too long
    """
    url = normalise(text) if type(text) is str and len(text) <= URL_MAX else None
    if url is None or len(url) > URL_MAX:
        raise BadMessage(f"no http or https URL of at most {URL_MAX} characters")
    return url


def check_count(value: Any, name: str, most: int) -> int:
    """:raises BadMessage: it is no number from 0 to ``most``"""
    if type(value) is not int or not 0 <= value <= most:
        raise BadMessage(f"{name} is no number from 0 to {most}")
    return value


def check_chain(urls: Any) -> tuple[str, ...]:
    """:raises BadMessage: it is no list of URLs, or too long"""
    if type(urls) is not list or len(urls) > MAX_COUNT:
        raise BadMessage(f"redirect_urls is no list of at most {MAX_COUNT} URLs")
    return tuple(map(check_url, urls))


def check_hop(hop: Any) -> str:
    """:raises BadMessage: it is neither empty nor a letter"""
    if hop == "" or (type(hop) is str and len(hop) == 1 and hop.isascii() and hop.isalpha()):
        return str(hop)
    raise BadMessage("krowl_hop is no letter")
