"""A URL on its way between nodes: what it carries, and its JSON.

The JSON is what Scrapy's ``request_from_dict`` reads, so an ordinary scrapy-redis process can take it, and push its own:
this module is itself a ``SCHEDULER_SERIALIZER``. What comes in is read with strict bounds, as anybody who reaches the
Redis may have written it; a class to load or a pickle is never among it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from krowlspider.urls.canonical import normalise
from krowlspider.urls.seeds import MAX_SEED, BadSeed, parse_seed

# Bytes of a message: a chain of 20 redirects of the longest URLs fits in.
MAX_MESSAGE = 65_536
# Messages that are taken in in one turn, while they are not long: each turn waits for the disk once, some 20 ms.
TURN = 4000
# Characters of a URL: no longer one is queued.
MAX_URL = MAX_SEED
# Levels of lists and objects in meta: below what any later step could stumble over.
MAX_NESTING = 8
MAX_DEPTH = 0xFFFF
MAX_COUNT = 0xFF

# A public method of a spider.
_Method = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,99}$")]
_Priority = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
# Of Message, under these names in meta.
_COUNTS = {"depth": MAX_DEPTH, "redirect_times": MAX_COUNT, "krowl_hops": MAX_COUNT}
# Of whole requests, left in meta.
_TRIES = ("retry_times", "distress_times")
# Only on the way between nodes.
_ON_THE_WAY = frozenset({"krowl_hops", "krowl_bare", "krowl_via", "krowl_hop"})
# Names in meta by which Scrapy, its middlewares and this project are told what to do with a
# request: those that a message may carry, and the others, which are left out. All other names are
# data of a spider's own.
_CARRIED = frozenset(
    {
        *("depth", "redirect_times", "redirect_urls", "redirect_reasons", "redirect_ttl"),
        *_TRIES,
        *("dont_redirect", "dont_retry", "handle_httpstatus_all", "handle_httpstatus_list"),
        *("cookiejar", "dont_merge_cookies", "dont_cache", "referrer_policy", "rule"),
        # Limits, which who takes the message lowers to its own.
        *("download_maxsize", "download_timeout", "max_retry_times"),
        "krowl_sitemap",
    }
)
_STEERING = frozenset(
    {
        *("allow_offsite", "autothrottle_dont_adjust_delay", "bindaddress", "proxy", "_auth_proxy"),
        *("cache_timestamp", "cached_response", "_dont_cache", "depth_reset", "give_up_log_level"),
        *("dont_obey_robotstxt", "download_fail_on_dataloss", "download_latency", "download_slot"),
        *("download_warnsize", "ftp_local_filename", "ftp_passive", "ftp_password", "ftp_user"),
        *("http_auth_domain", "http_pass", "http_user", "is_secure", "is_start_request"),
        *("priority_adjust", "verbatim_url"),
    }
)


class BadMessage(ValueError):
    """No message of ours; the text says why."""


class Message(Struct, omit_defaults=True):
    """A URL on its way to its owner, as an entry of a queue has it.

    ``hops`` counts the owners that it has been sent to. ``bare``, ``chain``, ``via`` and ``hop`` are as of a queue
    entry. ``meta`` is what a user gave besides, plain JSON; ``rest`` what a whole request has besides GET and URL,
    by the names of Scrapy's ``Request`` (method, headers, body, callback ...): names of methods in it are not looked up yet.
    """

    url: str
    depth: int = 0
    priority: int = 0
    hops: int = 0
    redirects: int = 0
    bare: bool = False
    chain: tuple[str, ...] = ()
    via: str = ""
    hop: str = ""
    meta: dict[str, Any] = {}
    rest: dict[str, Any] = {}


class _Request(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What of Scrapy's ``Request.to_dict`` may stand in a message."""

    url: str
    priority: _Priority = 0
    meta: dict[str, Any] = {}
    callback: _Method | None = None
    errback: _Method | None = None
    method: Annotated[str, Meta(pattern=r"^[A-Z]{1,20}$")] = "GET"
    headers: dict[str, str | list[str]] = {}
    body: str = ""
    cookies: dict[str, str] | list[dict[str, Any]] = {}
    encoding: Literal["utf-8"] = "utf-8"
    dont_filter: bool = False
    flags: list[str] = []
    cb_kwargs: dict[str, Any] = {}


class _LinkMeta(Struct, forbid_unknown_fields=True, frozen=True):
    """All that is in the meta of a page as it goes between nodes, but for a chain of redirects."""

    depth: Annotated[int, Meta(ge=0, le=MAX_DEPTH)] = 0
    redirect_times: Annotated[int, Meta(ge=0, le=MAX_COUNT)] = 0
    krowl_hops: Annotated[int, Meta(ge=0, le=MAX_COUNT)] = 0
    krowl_bare: bool = False
    krowl_via: str = ""
    krowl_hop: Annotated[str, Meta(max_length=1)] = ""


class _Link(Struct, forbid_unknown_fields=True):
    """What nearly all messages are: read in half the time of a `_Request`."""

    url: str
    priority: _Priority = 0
    meta: _LinkMeta = _LinkMeta()


class _Start(Struct, forbid_unknown_fields=True):
    """What users of scrapy-redis push as a start URL. Form data, which it makes of any other field, is not known here."""

    url: str
    depth: Annotated[int, Meta(ge=0, le=MAX_DEPTH)] = 0
    priority: _Priority = 0
    meta: dict[str, Any] = {}
    method: Literal["GET"] = "GET"


_REST = [name for name in _Request.__struct_fields__ if name not in {"url", "priority", "meta"}]
_PLAIN = _Request("")
_encode = msgspec.json.Encoder().encode
_decode_link = msgspec.json.Decoder(_Link).decode
_decode_request = msgspec.json.Decoder(_Request).decode
_decode_start = msgspec.json.Decoder(_Start).decode


def encode(message: Message) -> bytes:
    """:raises ValueError: it is longer than `MAX_MESSAGE`, or its meta is no plain JSON"""
    meta: dict[str, Any] = dict(message.meta)
    if not is_plain(meta) or not is_plain(message.rest):
        raise ValueError("its meta is no plain JSON")
    if message.depth:
        meta["depth"] = min(message.depth, MAX_DEPTH)
    if message.redirects:
        meta["redirect_times"] = min(message.redirects, MAX_COUNT)
    if message.chain:
        meta["redirect_urls"] = message.chain
    if message.hops:
        meta["krowl_hops"] = min(message.hops, MAX_COUNT)
    if message.bare:
        meta["krowl_bare"] = True
    if message.via:
        meta["krowl_via"] = message.via
        meta["krowl_hop"] = message.hop
    data: dict[str, Any] = {"url": message.url}
    if message.priority:
        data["priority"] = message.priority
    if meta:
        data["meta"] = meta
    if message.rest:
        data.update(message.rest)
    return _bounded(_encode(data))


def decode(data: bytes) -> Message:
    """:raises BadMessage: it is not what `encode` or `dumps` makes"""
    if (link := _read_link(data)) is not None:
        return link
    request = _read(_decode_request, data)
    return _message(_url(request.url), request.priority, request.meta, _rest(request))


def decode_start(data: bytes) -> Message:
    """A start URL as users push it: a URL or a bare domain, or JSON with url, depth, priority and meta.

    :raises BadMessage: it is neither
    """
    if not data.lstrip().startswith(b"{"):
        url, bare = _seed(data)
        return Message(url, bare=bare)
    start = _read(_decode_start, data)
    url, bare = _seed(start.url.encode())
    message = _message(url, start.priority, start.meta, {})
    message.depth = start.depth or message.depth
    message.bare = bare
    return message


def dumps(request: dict[str, Any]) -> bytes:
    """The message of a request, as ``Request.to_dict`` gives it.

    :raises ValueError: it is of another class, or holds what is no plain JSON
    """
    data = {
        name: value
        for name, value in request.items()
        if value is not None and value not in ({}, [], b"")
    }
    if body := data.get("body"):
        data["body"] = body.decode()
    if headers := data.get("headers"):
        data["headers"] = {
            name.decode("latin-1"): [value.decode("latin-1") for value in values]
            for name, values in headers.items()
        }
    if not is_plain(data):
        raise ValueError("not plain JSON")
    message = _bounded(_encode(msgspec.convert(data, _Request)))
    decode(message)
    return message


def loads(data: bytes) -> dict[str, Any]:
    """What ``request_from_dict`` makes a request of.

    :raises BadMessage: as `decode`
    """
    decode(data)
    loaded: dict[str, Any] = msgspec.json.decode(data)
    if meta := loaded.get("meta"):
        loaded["meta"] = {
            name: value for name, value in meta.items() if name in _ON_THE_WAY or _may_come(name)
        }
    return loaded


def carried(meta: dict[str, Any]) -> dict[str, Any]:
    """What of a request's meta may come from outside: a spider's own data, and what is named above,
    within its bounds.

    :raises BadMessage: a count, a chain of redirects or the place of a sitemap is none
    """
    for name in (*_COUNTS, *_TRIES):
        _count(meta.get(name, 0), name, _COUNTS.get(name, MAX_COUNT))
    _chain(meta.get("redirect_urls", []))
    match meta.get("krowl_sitemap", [1, ""]):
        case [int(level), str()] if 1 <= level <= MAX_COUNT:
            pass
        case _:
            raise BadMessage("krowl_sitemap is no level and host")
    return {name: value for name, value in meta.items() if _may_come(name)}


def _may_come(name: str) -> bool:
    return name in _CARRIED or not (name in _STEERING or name.startswith("krowl_"))


def is_plain(value: object, levels: int = MAX_NESTING) -> bool:
    """Whether a value comes back from JSON as it was: no tuple, bytes, date, nor a number beyond its range."""
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


def _read_link(data: bytes) -> Message | None:
    """The message of a page with nothing out of the ordinary; None: it is another one, or none.

    :raises BadMessage: it has no URL, or one that cannot be
    """
    if len(data) > MAX_MESSAGE:
        return None
    try:
        link = _decode_link(data)
    except (ValueError, RecursionError):
        return None
    meta = link.meta
    via, hop = meta.krowl_via, meta.krowl_hop
    if hop and not via:
        return None
    return Message(
        _url(link.url),
        meta.depth,
        link.priority,
        meta.krowl_hops,
        meta.redirect_times,
        meta.krowl_bare,
        via=_url(via) if via else "",
        hop=_letter(hop),
    )


def _read(decoder: Any, data: bytes) -> Any:
    if len(data) > MAX_MESSAGE:
        raise BadMessage(f"longer than {MAX_MESSAGE} bytes")
    try:
        return decoder(data)
    except (ValueError, RecursionError) as error:
        raise BadMessage(str(error)[:200]) from error


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_MESSAGE:
        raise ValueError(f"longer than {MAX_MESSAGE} bytes")
    return data


def _rest(request: _Request) -> dict[str, Any]:
    if request == _Request(request.url, request.priority, request.meta):
        return {}
    values = {name: getattr(request, name) for name in _REST}
    return {name: value for name, value in values.items() if value != getattr(_PLAIN, name)}


def _url(text: Any) -> str:
    url = normalise(text) if type(text) is str and len(text) <= MAX_URL else None
    if url is None or len(url) > MAX_URL:
        raise BadMessage(f"no http or https URL of at most {MAX_URL} characters")
    return url


def _seed(data: bytes) -> tuple[str, bool]:
    try:
        seed = parse_seed(data)
    except BadSeed as error:
        raise BadMessage(str(error)[:200]) from error
    if seed is None:
        raise BadMessage("no URL")
    return _url(seed.url), seed.bare


def _message(url: str, priority: int, meta: dict[str, Any], rest: dict[str, Any]) -> Message:
    message = Message(url, priority=priority, rest=rest)
    if meta:
        message.depth, message.redirects, message.hops = (
            _count(meta.pop(name, 0), name, most) for name, most in _COUNTS.items()
        )
        message.bare = meta.pop("krowl_bare", False) is True
        if chain := meta.pop("redirect_urls", ()):
            message.chain = _chain(chain)
        if via := meta.pop("krowl_via", ""):
            message.via = _url(via)
            message.hop = _letter(meta.pop("krowl_hop", ""))
        message.meta = carried(meta)
    if not is_plain(meta) or (rest and not is_plain(rest)):
        raise BadMessage(f"nested deeper than {MAX_NESTING} levels")
    return message


def _count(value: Any, name: str, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise BadMessage(f"{name} is no number from 0 to {most}")
    return value


def _chain(urls: Any) -> tuple[str, ...]:
    if type(urls) is not list or len(urls) > MAX_COUNT:
        raise BadMessage(f"redirect_urls is no list of at most {MAX_COUNT} URLs")
    return tuple(map(_url, urls))


def _letter(hop: Any) -> str:
    if hop == "" or (type(hop) is str and len(hop) == 1 and hop.isascii() and hop.isalpha()):
        return str(hop)
    raise BadMessage("krowl_hop is no letter")
