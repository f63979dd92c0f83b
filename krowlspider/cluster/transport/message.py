"""The JSON of a URL or a request that goes from node to node.

Scrapy's ``request_from_dict`` reads it, so an ordinary scrapy-redis process can take it and push
its own: this module is a ``SCHEDULER_SERIALIZER``. Incoming messages are read with strict bounds.
They never name a class to load or contain a pickle.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from krowlspider.cluster.transport.meta import (
    MAX_COUNT,
    MAX_DEPTH,
    MAX_NESTING,
    BadMessage,
    carried,
    carried_between_nodes,
    check_chain,
    check_hop,
    check_url,
    is_plain,
)
from krowlspider.urls.seeds import BadSeed, parse_seed

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
    seed that it came from. ``meta`` is a user's own data, ``rest`` what a request has besides GET
    and URL, by the names of Scrapy's ``Request``.
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
        url, bare = _seed(data)
        return Message(url, bare=bare)
    start = _decode(_decode_start, data)
    url, bare = _seed(start.url.encode())
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


def _seed(data: bytes) -> tuple[str, bool]:
    try:
        seed = parse_seed(data)
    except BadSeed as error:
        raise BadMessage(str(error)[:200]) from error
    if seed is None:
        raise BadMessage("no URL")
    return check_url(seed.url), seed.bare


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
