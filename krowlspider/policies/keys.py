"""The keys of a sheet: each with its check and its words for docs/policies.md."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, fields
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from krowlspider.internals.patterns import steps_of
from krowlspider.urls.page.headers import PAYMENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    Check = Callable[[Any], Any]

# Seconds of a day, and the longest time that a sheet may give: ten years.
_DAY = 86_400.0
_LONGEST = 3650 * _DAY
_MOST = 2**63 - 1
# Steps that searching an expression in a URL of 2,048 characters may take: a tenth of a second.
STEPS_MAX = 2.0**27
# ".*" at either end changes nothing of what is found, but costs the square of the length.
_LEADING = re.compile(r"\A(\(\?[aiLmsux]+\))?(?:\.\*\??)++(?![+*?{])")
_TRAILING = re.compile(r"(?<!\\)\.\*\??\$?$")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PRINTABLE = re.compile(r"[ -~]+")
# Headers that the crawl sets itself, and those that have keys of their own.
_RESERVED = {
    **dict.fromkeys(("connection", "content-length", "host", "te", "trailer"), "the crawl sets it"),
    **dict.fromkeys(("transfer-encoding", "upgrade"), "the crawl sets it"),
    **dict.fromkeys(("expect", "if-modified-since", "if-none-match"), "the crawl sets it"),
    **dict.fromkeys(("signature", "signature-agent", "signature-input"), "see KROWL_SIGN_KEY"),
    "range": "whole pages are fetched",
    "authorization": "use the key auth",
    "cookie": "use the key cookies",
    "proxy-authorization": "it is for the proxy, not for the site",
    "user-agent": "use the key user_agent_suffix",
    **{name.decode().lower(): "no request may offer to pay" for name in PAYMENTS},
}


@dataclass(frozen=True, slots=True)
class Policy:
    """What the sheets say about a host or a URL. None: no sheet says anything, the setting holds.

    Times are in seconds. ``include`` and ``exclude`` are searched in the normalised URL.
    ``cookies`` and ``auth`` are paths as written in the file; they are relative to its folder.
    """

    delay: float | None = None
    concurrency: int | None = None
    depth: int | None = None
    include: tuple[re.Pattern[str], ...] | None = None
    exclude: tuple[re.Pattern[str], ...] | None = None
    scope: str | None = None
    max_pages: int | None = None
    max_bytes: int | None = None
    max_seconds: float | None = None
    quota: str | None = None
    requisites: bool | None = None
    recrawl_min: float | None = None
    recrawl_max: float | None = None
    weight: float | None = None
    priority: int | None = None
    user_agent_suffix: str | None = None
    headers: dict[str, str] | None = None
    cookies: str | None = None
    auth: str | None = None
    auth_over_http: bool | None = None
    head: bool | None = None
    www: str | None = None
    index_pages: str | None = None
    trailing_slash: str | None = None
    duplicate_slashes: str | None = None
    parameters: tuple[str, ...] | None = None
    sort_query: bool | None = None
    archive: bool | None = None
    robots: str | None = None
    permission: str | None = None

    @property
    def is_limited(self) -> bool:
        return not (self.max_pages is self.max_bytes is self.max_seconds is None)

    @property
    def rewrites(self) -> bool:
        """Whether a URL may be rewritten."""
        return any(getattr(self, key) not in _KEPT for key in REWRITES)

    def refusal(self, url: str, *, is_page: bool, is_given: bool) -> str:
        """Return sheet_exclude or sheet_include if a normalised URL must not be fetched for it;
        else "". ``include`` holds for pages that no person has given."""
        # Asked for each link: a generator would double its time.
        for pattern in self.exclude or ():
            if pattern.search(url):
                return "sheet_exclude"
        if self.include is None or is_given or not is_page:
            return ""
        return "" if any(pattern.search(url) for pattern in self.include) else "sheet_include"


class Key(NamedTuple):
    """A key of a sheet. ``check`` returns the value of `Policy`, and raises ValueError with what
    the value must be. ``says`` are its words for people."""

    check: Check
    says: str


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")  # noqa: TRY004
    return value


def _integer(low: int, high: int = _MOST) -> Check:
    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            most = "" if high == _MOST else f" to {high}"
            raise ValueError(f"must be a whole number from {low}{most}")
        return value

    return check


def _number(high: float, unit: str, low: float = 0.0) -> Check:
    def check(value: Any) -> float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (is_number and low < value <= high):
            raise ValueError(f"must be a number of {unit} above {low:g}, at most {high:g}")
        return float(value)

    return check


def _word(*words: str) -> Check:
    def check(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"must be {' or '.join(map(repr, words))}")
        return value

    return check


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError("must be a text of printable characters")
    return value


def _ascii(value: object) -> str:
    if not isinstance(value, str) or not _PRINTABLE.fullmatch(value) or value != value.strip():
        raise ValueError("must be a text of printable ASCII characters, without spaces around it")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise ValueError("must be a list of texts")
    return tuple(value)


def _expressions(value: object) -> tuple[re.Pattern[str], ...]:
    return _compiled(_texts(value))


# Many sheets have the same ones.
@lru_cache(maxsize=4096)
def _compiled(texts: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    return tuple(map(expression, texts))


@lru_cache(maxsize=4096)
def expression(text: str) -> re.Pattern[str]:
    """Return a regular expression that takes no long time on any URL.

    :raises ValueError: it is none
    """
    try:
        re.compile(text)
        short = _TRAILING.sub("", _LEADING.sub(r"\1", text, count=1)) if ".*" in text else text
        pattern, steps = re.compile(short), steps_of(short)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{text[:80]!r} is not a regular expression: {error}") from error
    if steps > STEPS_MAX:
        time = "exponential time" if steps == inf else "time beyond the square of its length"
        raise ValueError(
            f"{text[:80]!r} could take {time} on a long URL: begin it with '^', write possessive"
            " repeats such as '[^/]*+', or use fewer repeats"
        )
    return pattern


def _headers(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError('must be a table such as { "Accept-Language" = "de" }')  # noqa: TRY004
    if len(set(map(str.lower, value))) < len(value):
        twice = [name for name, count in Counter(map(str.lower, value)).items() if count > 1]
        raise ValueError(f"{twice[0]} stands twice: a header has one value, whatever its case")
    for name, text in value.items():
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a header")
        if why := _RESERVED.get(name.lower()):
            raise ValueError(f"must not set {name}: {why}")
        if not isinstance(text, str) or not _PRINTABLE.fullmatch(text) or text != text.strip():
            raise ValueError(f"{name} must have a text of printable ASCII characters")
    return value


KEYS: dict[str, Key] = {
    "delay": Key(
        _number(_DAY, "seconds"),
        "Least seconds between two requests to the host; of several paths of a host, the longest"
        " holds. It only makes waits longer than the settings, robots.txt and backoff do.",
    ),
    "concurrency": Key(
        _integer(1, 1000),
        "Requests in flight to a registrable domain, in place of KROWL_DOMAIN_CONCURRENCY. The"
        " sheet must match the whole domain.",
    ),
    "depth": Key(_integer(0), "Most links from a seed to a URL that the sheet covers."),
    "include": Key(
        _expressions,
        "Regular expressions. Only URLs in which one of them is found are fetched; seeds and"
        " requisites without it.",
    ),
    "exclude": Key(
        _expressions, "Regular expressions. URLs in which one of them is found are not fetched."
    ),
    "scope": Key(
        _word("host", "domain", "any"),
        "Where links of pages that the sheet covers may lead: to the page's host, to its"
        " registrable domain, or anywhere.",
    ),
    "max_pages": Key(_integer(0), "Most pages fetched; robots.txt and requisites do not count."),
    "max_bytes": Key(_integer(0), "Most bytes received; once they are reached no more is fetched."),
    "max_seconds": Key(
        _number(_LONGEST, "seconds"), "Seconds from the first page to the last that is begun."
    ),
    "quota": Key(
        _word("host", "sheet"),
        "For what max_pages, max_bytes and max_seconds count: each host (if not given), or all"
        " hosts of the sheet that gives the limit together.",
    ),
    "requisites": Key(_flag, "Whether the files that a page needs to be shown are fetched."),
    "recrawl_min": Key(_number(_LONGEST, "seconds"), "Least seconds until a page is asked again."),
    "recrawl_max": Key(_number(_LONGEST, "seconds"), "Most seconds until a page is asked again."),
    "weight": Key(_number(1000.0, "times"), "Worth of a change of its pages; 1 if not given."),
    "priority": Key(_integer(-999, 999), "Higher ones come first among the queued URLs of a host."),
    "user_agent_suffix": Key(_ascii, "Text after the User-Agent, with a space between them."),
    "headers": Key(_headers, "Table of request headers."),
    "cookies": Key(_text, "File of cookies that are sent, a cookies.txt of Netscape's format."),
    "auth": Key(
        _text, "File with a line `user:password` for HTTP authentication (Basic), over https."
    ),
    "auth_over_http": Key(_flag, "Whether `auth` is also sent without encryption, over http."),
    "head": Key(_flag, "Whether a URL of unknown type is asked by HEAD before GET."),
    "www": Key(_word("keep", "drop"), "Whether a leading `www.` of the host stays."),
    "index_pages": Key(
        _word("keep", "drop"), "Whether `index.html`, `default.asp` and the like stay at the end."
    ),
    "trailing_slash": Key(
        _word("keep", "add", "drop"), "Whether a slash at the end of the path stays."
    ),
    "duplicate_slashes": Key(_word("keep", "drop"), "Whether `//` in a path becomes `/`."),
    "parameters": Key(_texts, "Names of parameters that are removed from the query; `*` ends one."),
    "sort_query": Key(_flag, "Whether the parameters of the query are sorted."),
    "archive": Key(_flag, "Whether what is fetched is archived; robots.txt always is."),
    "robots": Key(
        _word("obey", "override"),
        "override: what robots.txt disallows is fetched. robots.txt is fetched all the same, and"
        " its Crawl-delay holds. It needs `permission`.",
    ),
    "permission": Key(
        _text,
        "Who has permitted to override robots.txt, when and how; in the sheet with `robots`, and"
        " never without it. It is archived.",
    ),
}
# The keys that rewrite URLs.
REWRITES = frozenset(
    ("www", "index_pages", "trailing_slash", "duplicate_slashes", "parameters", "sort_query")
)
# Their values that leave URLs as they are.
_KEPT = (None, "keep", False, ())
assert KEYS.keys() == {each.name for each in fields(Policy)}
