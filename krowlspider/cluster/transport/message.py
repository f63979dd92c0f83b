"""The JSON that goes from node to node: requests and marks of batches, with bounds for both.

The JSON of a URL or a request that goes from node to node. Scrapy's ``request_from_dict`` reads it,
so an ordinary scrapy-redis process can take it and push its own: this module is a
``SCHEDULER_SERIALIZER``. Incoming messages are read with strict bounds. They never name a class to
load or contain a pickle.

The JSON by which a finder learns which of its forwarded messages are durable at their owner. A
finder numbers the batches that it pushes to an owner's list, from 0 on: they are a stream. Behind
the messages of each batch, in the same push, is a mark. When all that came before a mark is durable
in its frontier, the owner publishes an acknowledgement for the finder.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from krowlspider.urls.canonical import URL_MAX, normalise
from krowlspider.urls.gemini import SCHEME, accepts_gemini
from krowlspider.urls.page.requisites.requisite import Requisite
from krowlspider.urls.seeds import BadSeed, parse_seed, parse_words

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
        *("krowl_requisite", "krowl_sitemap", "krowl_guess", "krowl_opt_out", "krowl_indexnow"),
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
    match meta.get("krowl_indexnow", ["", 0.0, ""]):
        case [str(), float() | int(), str()]:
            pass
        case _:
            raise BadMessage("krowl_indexnow is no key, time and URLs")
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

    :raises BadMessage: it is no URL that this node crawls, or too long
    """
    url = normalise(text) if type(text) is str and len(text) <= URL_MAX else None
    if url is None or len(url) > URL_MAX:
        if type(text) is str and text.startswith(SCHEME) and not accepts_gemini():
            raise BadMessage("a gemini URL: set KROWL_GEMINI=True, as at the node that sent it")
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


def _check_state(text: str) -> str:
    """:raises BadMessage: it is no JSON in one line"""
    try:
        msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"krowl_state: {error}"[:200]) from error
    if "\n" in text:
        raise BadMessage("krowl_state has several lines")
    return text


# Characters of what a hook keeps with a URL.
STATE_MAX = 4096
# Bytes of a message: a chain of 20 redirects of the longest URLs fits in.
MAX_MESSAGE = 65_536
# Most messages taken in one turn, which waits for the disk once.
TURN = 4000

# A public method of a spider.
_Method = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,99}$")]
_Priority = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
_Depth = Annotated[int, Meta(ge=0, le=MAX_DEPTH)]
_Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]


class Message(Struct, omit_defaults=True):
    """A URL on its way to its owner; ``hops`` counts the owners to which it was sent.

    ``bare``, ``chain``, ``via`` and ``hop`` are as in a queue entry, ``seed`` is the URL of the
    seed that it came from, ``words`` are those of the seed as JSON, "" without any. ``state`` is
    what a hook keeps with it, as JSON. ``meta`` is a user's own data, ``rest`` what a request has
    besides GET and URL, by the names of Scrapy's ``Request``.
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
    seed: str = ""
    words: str = ""
    state: str = ""
    meta: dict[str, Any] = {}
    rest: dict[str, Any] = {}


class _Request(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What a message may have of Scrapy's ``Request.to_dict``."""

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


class _LinkMeta(Struct, omit_defaults=True, forbid_unknown_fields=True, frozen=True):
    """The meta of a page as it goes between nodes, but for a chain of redirects."""

    depth: _Depth = 0
    redirect_times: _Count = 0
    krowl_hops: _Count = 0
    krowl_bare: bool = False
    krowl_via: str = ""
    krowl_hop: Annotated[str, Meta(max_length=1)] = ""
    krowl_seed: str = ""
    krowl_words: str = ""
    krowl_state: Annotated[str, Meta(max_length=STATE_MAX)] = ""


_NO_META = _LinkMeta()


class _Link(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Nearly all messages are of this form, which is read and written faster than a `_Request`."""

    url: str
    priority: _Priority = 0
    meta: _LinkMeta = _NO_META


class _Start(Struct, forbid_unknown_fields=True):
    """A start URL as users of scrapy-redis push it, without form data."""

    url: str
    depth: _Depth = 0
    priority: _Priority = 0
    meta: dict[str, Any] = {}
    method: Literal["GET"] = "GET"


_REST = [name for name in _Request.__struct_fields__ if name not in {"url", "priority", "meta"}]
_PLAIN = _Request("")
# Many messages have the same seed.
_check_seed = lru_cache(4096)(check_url)


@lru_cache(4096)
def _check_words(text: str) -> str:
    """Return the words of a seed in their usual form.

    :raises BadMessage: they are none
    """
    try:
        return parse_words(text).text()
    except BadSeed as error:
        raise BadMessage(str(error)[:200]) from error


_encode = msgspec.json.Encoder().encode
_decode_link = msgspec.json.Decoder(_Link).decode
_decode_request = msgspec.json.Decoder(_Request).decode
_decode_start = msgspec.json.Decoder(_Start).decode


def encode(message: Message) -> bytes:
    """:raises ValueError: it is longer than `MAX_MESSAGE`, or its meta is no plain JSON"""
    known = _LinkMeta(
        min(message.depth, MAX_DEPTH),
        min(message.redirects, MAX_COUNT),
        min(message.hops, MAX_COUNT),
        message.bare,
        message.via,
        message.hop if message.via else "",
        message.seed,
        message.words,
        message.state,
    )
    if not (message.meta or message.rest or message.chain):
        # msgspec leaves out this very object, not one that equals it.
        known = _NO_META if known == _NO_META else known
        return _bounded(_encode(_Link(message.url, message.priority, known)))
    if not is_plain(message.meta) or not is_plain(message.rest):
        raise ValueError("its meta is no plain JSON")
    meta = {**message.meta, **msgspec.to_builtins(known)}
    if message.chain:
        meta["redirect_urls"] = message.chain
    return _bounded(_encode(_Request(message.url, message.priority, meta, **message.rest)))


def decode(data: bytes) -> Message:
    """Return the message.

    :raises BadMessage: it is not the JSON of a request, has a bad URL, or exceeds a bound
    """
    page = _decode_page(data)
    return decode_any(data) if page is None else page


def decode_any(data: bytes) -> Message:
    """Return the message of a page or of any other request; slower than `decode` for a page.

    :raises BadMessage: as `decode`
    """
    request = _decode(_decode_request, data)
    values = {name: getattr(request, name) for name in _REST}
    rest = {name: value for name, value in values.items() if value != getattr(_PLAIN, name)}
    return _message(request.url, request.priority, request.meta, rest)


def decode_start(data: bytes) -> Message:
    """Return the message of a URL or a bare domain, or of JSON as in `_Start`.

    :raises BadMessage: it is neither
    """
    if not data.lstrip().startswith(b"{"):
        url, bare, words = _seed(data)
        return Message(url, bare=bare, words=words)
    start = _decode(_decode_start, data)
    url, bare, _ = _seed(start.url.encode())
    message = _message(url, start.priority, start.meta, {})
    message.depth = start.depth or message.depth
    message.bare = bare
    return message


def dumps(request: dict[str, Any]) -> bytes:
    """Return the message of a request, given as ``Request.to_dict`` returns it.

    :raises ValueError: it is of another class, or has what is no plain JSON
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
    """Return the dict of a message for ``request_from_dict``.

    :raises BadMessage: as `decode`
    """
    decode(data)
    loaded: dict[str, Any] = msgspec.json.decode(data)
    if meta := loaded.get("meta"):
        loaded["meta"] = carried_between_nodes(meta)
    return loaded


def _decode_page(data: bytes) -> Message | None:
    """Return the message of a `_Link`; None if it has another form.

    :raises BadMessage: a URL in it is invalid
    """
    if len(data) > MAX_MESSAGE:
        return None
    try:
        link = _decode_link(data)
    except (ValueError, RecursionError):
        return None
    return _message_of(link.url, link.priority, link.meta)


def _message_of(url: str, priority: int, meta: _LinkMeta) -> Message:
    via = check_url(meta.krowl_via) if meta.krowl_via else ""
    return Message(
        check_url(url),
        meta.depth,
        priority,
        meta.krowl_hops,
        meta.redirect_times,
        meta.krowl_bare,
        via=via,
        hop=check_hop(meta.krowl_hop) if via else "",
        seed=_check_seed(meta.krowl_seed) if meta.krowl_seed else "",
        words=_check_words(meta.krowl_words) if meta.krowl_words else "",
        state=_check_state(meta.krowl_state) if meta.krowl_state else "",
    )


def _decode(decoder: Any, data: bytes) -> Any:
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


def _seed(data: bytes) -> tuple[str, bool, str]:
    """Return URL, whether it is bare, and the words as JSON."""
    try:
        seed = parse_seed(data)
    except BadSeed as error:
        raise BadMessage(str(error)[:200]) from error
    if seed is None:
        raise BadMessage("no URL")
    return check_url(seed.url), seed.bare, "" if seed.words is None else seed.words.text()


def _message(url: str, priority: int, meta: dict[str, Any], rest: dict[str, Any]) -> Message:
    known = {name: meta.pop(name) for name in _LinkMeta.__struct_fields__ if name in meta}
    try:
        message = _message_of(url, priority, msgspec.convert(known, _LinkMeta))
    except msgspec.ValidationError as error:
        raise BadMessage(str(error)[:200]) from error
    message.chain = check_chain(meta.pop("redirect_urls", []))
    message.meta, message.rest = carried(meta), rest
    if not is_plain(meta) or not is_plain(rest):
        raise BadMessage(f"nested deeper than {MAX_NESTING} levels")
    return message


# Numbers are below this: readers of JSON keep them exactly.
LIMIT = 2**53
# Bytes with which each mark begins. No message does.
_BEGIN = b'{"mark":'

_Node = Annotated[str, Meta(min_length=1, max_length=255)]
_Number = Annotated[int, Meta(ge=0, lt=LIMIT)]


class Mark(Struct, tag_field="mark", tag=1, forbid_unknown_fields=True, frozen=True):
    """The end of batch ``number`` of a ``stream`` from ``finder`` to ``owner``.

    The finder's outbox has nothing for the owner up to the sequence ``last`` that is neither in
    this batch, nor in an earlier one of the stream, nor acknowledged.
    """

    finder: _Node
    owner: _Node
    stream: _Number
    number: _Number
    last: _Number


class Acknowledgement(Struct, array_like=True, frozen=True):
    """Messages of a ``stream`` up to the sequence ``last`` are durable; -1: none.

    ``has_gap``: a batch behind them did not arrive, so later ones of the stream do not count.
    """

    stream: _Number
    last: Annotated[int, Meta(ge=-1, lt=LIMIT)]
    has_gap: bool = False


_decode_mark = msgspec.json.Decoder(Mark).decode
_decode_acknowledgement = msgspec.json.Decoder(Acknowledgement).decode


def acknowledged_key(spider: str) -> str:
    """Return the key of the acknowledgements, a hash by finder, beside an owner's list."""
    return f"{spider}:acknowledged"


def encode_mark(value: Mark | Acknowledgement) -> bytes:
    return _encode(value)


def is_mark(data: bytes) -> bool:
    return data.startswith(_BEGIN)


def decode_mark(data: bytes) -> Mark:
    """:raises BadMessage: it is no mark of this version"""
    try:
        return _decode_mark(data)
    except (ValueError, RecursionError) as error:
        raise BadMessage(str(error)[:200]) from error


def decode_acknowledgement(data: bytes | None) -> Acknowledgement | None:
    """Return an acknowledgement, None if there is none. Anybody may have written it."""
    try:
        return None if data is None else _decode_acknowledgement(data)
    except (ValueError, RecursionError):
        return None
