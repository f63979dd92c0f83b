"""A queued URL and what its answer said of the page: formats on disk, and JSON."""

from __future__ import annotations

import re
import struct
from string import ascii_uppercase
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Self

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from krowlspider.frontier.store.schema import PRIORITY_LIMIT, SEED_SIZE, host_in
from krowlspider.urls.canonical import normalise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from krowlspider.recrawl.validators import Asked, Meaning

# Bytes of the longest ETag and Last-Modified that are kept.
ETAG_MAX = 1024
MODIFIED_MAX = 64
# RFC 9110, section 8.8.3. Servers that leave out the quotes compare them as they please.
_ETAG = re.compile(rb'(?:W/)?"[!#-~\x80-\xff]*"')
# RFC 9110, section 5.5: what a field may have inside.
_TEXT = re.compile(rb"[ -~]+")


class Receipt(Protocol):
    """What the archive says of a record: the digest of its payload, and the URL and WARC-Date of
    the record that has the payload; empty without one.

    The archive's thread fills it. It is whole once the record is durable.
    """

    payload: bytes
    url: str
    date: float


class Fetched(Struct, eq=False):
    """What the row of a page keeps of its last answer.

    ``started`` is its WARC-Date, in seconds since the epoch. ``etag`` and ``modified`` are as the
    server sent them, empty where they cannot be sent back. ``meaning`` is what it says of the page
    that was there before. ``text`` is the digest of its main text, empty without KROWL_RECRAWL, and
    where it has none. ``price`` is what it asks for, empty for nothing. ``asked`` is None for a
    page that was not known.
    """

    started: float
    status: int
    etag: bytes
    modified: bytes
    meaning: Meaning
    receipt: Receipt
    text: bytes = b""
    price: str = ""
    asked: Asked | None = None


def validators_in(
    headers: Iterable[tuple[bytes, bytes]], on_left: Callable[[str], object]
) -> tuple[bytes, bytes]:
    """Return the ETag and the Last-Modified of an answer, empty where it has none.

    One that is too long, binary, repeated or, of an ETag, without quotes, is left out: ``on_left``
    is called with ``etag`` or ``modified``.
    """
    etag = modified = b""
    left = 0
    for name, value in headers:
        size = len(name)
        if size == 4 and name.lower() == b"etag":
            left |= bool(etag)
            etag = value
        elif size == 13 and name.lower() == b"last-modified":
            left |= 2 * bool(modified)
            modified = value
    if etag and (left & 1 or len(etag) > ETAG_MAX or not _ETAG.fullmatch(etag)):
        on_left("etag")
        etag = b""
    if modified and (left & 2 or len(modified) > MODIFIED_MAX or not _TEXT.fullmatch(modified)):
        on_left("modified")
        modified = b""
    return etag, modified


_HEAD = struct.Struct(">BH")
_TRIES = struct.Struct(">BBBB")
_DUE = struct.Struct(">d")
_LENGTH = struct.Struct(">H")
_CHAIN_LENGTH = struct.Struct(">I")
# Flags in the first byte of an entry: the fields that follow, and the scheme.
_BARE = 1
_DELAYED = 2
_TRIED = 4
_REQUEST = 8
_HTTPS = 16
_WHOLE = 32
_CHAINED = 64
_VIA = 128
# In the depth, of which 15 bits are enough: the seed follows.
_SEEDED = 0x8000
DEPTH_MAX = _SEEDED - 1
# The highest counts that an entry holds, and more URLs than any crawl makes a chain of.
Count = Annotated[int, Meta(ge=0, le=0xFF)]
_Depth = Annotated[int, Meta(ge=0, le=DEPTH_MAX)]
_Chain = Annotated[tuple[str, ...], Meta(max_length=0xFF)]
_Priority = Annotated[int, Meta(ge=-PRIORITY_LIMIT, le=PRIORITY_LIMIT)]
_Path = Annotated[str, Meta(pattern="^[LMERP]{0,50}$")]
_State = Annotated[str, Meta(pattern="^(queued|poison)$")]
# Characters of the state that a hook keeps with a URL.
HOOK_STATE_MAX = 4096
_HookState = Annotated[str, Meta(pattern="^[^\n]*$", max_length=HOOK_STATE_MAX)]


# Hops that an entry keeps.
HOPS_MAX = 50
_PATH_LETTERS = f"{ascii_uppercase} "
# The hops that count in the depth. Sitemaps that name each other have one depth.
_LINKS = re.compile("L|M+")
# The first byte of a request says what it is for. REQUISITE is followed by a packed `Requisite`,
# AWAITED and SUBREQUEST by a token of who waits for it, the others by the request as JSON, or as a
# pickle. The browser waits for a SUBREQUEST.
REQUISITE = b"R"
SITEMAP = b"S"
OPT_OUT = b"O"
INDEX_KEY = b"K"
AWAITED = b"A"
SUBREQUEST = b"B"
# Plain pages that may have a row, of which nothing follows the byte: one that is fetched again by
# its row, one that was queued whether it is known or not, and one that was asked by HEAD. For a
# sitemap or a feed that is fetched again, SITEMAP and what its row keeps of it follow.
AGAIN = b"G"
UNMARKED = b"U"
HEADED = b"H"
JSON = b"J"
PICKLE = b"P"
# Those of requests that are for no page, with the word under which they are counted.
FILES = {
    REQUISITE: "requisite",
    SITEMAP: "sitemap",
    OPT_OUT: "opt_out",
    INDEX_KEY: "index_key",
    SUBREQUEST: "subrequest",
}
# Those of requests that are JSON.
AS_JSON = (JSON, SITEMAP, OPT_OUT, INDEX_KEY)


class Entry(Struct, eq=False, gc=False):
    """A queued URL, and what is known of it.

    - ``url``: fetched exactly as it is. ``depth``: its depth in the crawl; 0 for a seed.
    - ``redirects``, ``retries``, ``throttling``: redirects, failed and throttled tries so far.
    - ``strikes``: how often the process died while it worked on the page.
    - ``due``: the earliest time of the next try, in seconds of the job clock; 0 for now.
    - ``bare``: a seed that was given without a scheme: its https URL, or the http URL to which the
      crawl fell back.
    - ``request``: a whole serialised Scrapy request, a packed `Requisite` or a token, behind a byte
      that says which, and what it is for; empty for a plain GET of a page.
    - ``chain``: the URLs whose redirects led here, the first one first. A whole request has them in
      its meta instead.
    - ``via``: the URL that led to it; ``path``: the last HOPS_MAX hops from the seed, as in
      Heritrix: L link, R redirect, M sitemap, P robots.txt, E requisite. Both are empty for a seed,
      and where that is not kept.
    - ``seed``: the key of the seed that it came from, see `SeedNames`; empty for a seed, and where
      it is not known.
    - ``state``: what a hook keeps with it, as JSON in one line; empty without any.
    """

    url: str
    depth: int = 0
    redirects: int = 0
    retries: int = 0
    throttling: int = 0
    strikes: int = 0
    due: float = 0.0
    bare: bool = False
    request: bytes = b""
    chain: tuple[str, ...] = ()
    via: str = ""
    path: str = ""
    seed: bytes = b""
    state: str = ""

    @property
    def is_requisite(self) -> bool:
        return self.request[:1] == REQUISITE

    @property
    def is_part(self) -> bool:
        """Return whether a page needs it: a requisite, or what its browser asks for."""
        return self.request[:1] in (REQUISITE, SUBREQUEST)

    @property
    def is_awaited(self) -> bool:
        return self.request[:1] in (AWAITED, SUBREQUEST)

    @property
    def is_again(self) -> bool:
        """Return whether it is a page that was fetched, and is fetched again by its row."""
        return self.request[:1] == AGAIN

    @property
    def is_plain(self) -> bool:
        """Return whether it is a plain GET of a page, whose URL has all that is needed."""
        return not self.request or self.request[:1] in (AGAIN, UNMARKED, HEADED)

    @property
    def is_seed(self) -> bool:
        return not (self.depth or self.redirects or self.file)

    @property
    def may_fall_back(self) -> bool:
        """Return whether https is a guess, so that the http URL follows if it fails."""
        return self.bare and self.url.startswith("https:")

    @property
    def file(self) -> str:
        """Return the word in FILES for an entry that is no page; "" for a page."""
        request = self.request
        return FILES.get(request[1:2] if request[:1] == AGAIN else request[:1], "")

    @property
    def hops_from_seed(self) -> str:
        """Return the path; a number and ``+`` stand for the links before it that were not kept."""
        missing = self.depth - len(_LINKS.findall(self.path))
        return f"{missing}+{self.path}" if self.path and missing > 0 else self.path

    def encode(self, host: str) -> bytes:
        """Return the entry as it is stored under a key of its host: only what is not default.

        Of a URL on the host, only what follows the host is stored: URLs fill most of the disk.
        """
        url, root, flags = self.url, f"http://{host}/", 0
        if url.startswith("https://"):
            root, flags = f"https://{host}/", _HTTPS
        if url.startswith(root):
            path = url[len(root) - 1 :].encode()
        else:
            path = url.encode()
            flags |= _WHOLE
        if self.bare:
            flags |= _BARE
        fields = []
        if self.redirects or self.retries or self.throttling or self.strikes:
            flags |= _TRIED
            counts = (self.redirects, self.retries, self.throttling, self.strikes)
            fields.append(_TRIES.pack(*(min(count, 0xFF) for count in counts)))
        if self.due:
            flags |= _DELAYED
            fields.append(_DUE.pack(self.due))
        if self.chain:
            flags |= _CHAINED
            chain = "\n".join(shorten(url, host) for url in self.chain).encode()
            fields += [_CHAIN_LENGTH.pack(len(chain)), chain]
        if self.via or self.state:
            flags |= _VIA
            text = f"{self.path or ' '}{shorten(self.via, host)}" if self.via else ""
            via = (f"{text}\n{self.state}" if self.state else text).encode()
            fields += [_LENGTH.pack(len(via)), via]
        if self.request:
            flags |= _REQUEST
            fields.append(_LENGTH.pack(len(path)))
        depth = min(DEPTH_MAX, self.depth)
        head = _HEAD.pack(flags, depth | _SEEDED if self.seed else depth) + self.seed
        if not fields:
            # The short way: nearly all entries are plain links.
            return head + path
        return b"".join((head, *fields, path, self.request))

    @classmethod
    def decode(cls, data: bytes, host: str) -> Entry:
        """Return the entry that `encode` stored under a key of ``host``."""
        flags, depth = _HEAD.unpack_from(data)
        at, end = _HEAD.size, len(data)
        entry = cls("", depth & DEPTH_MAX, bare=bool(flags & _BARE))
        if depth & _SEEDED:
            entry.seed, at = data[at : at + SEED_SIZE], at + SEED_SIZE
        if flags & _TRIED:
            counts = _TRIES.unpack_from(data, at)
            entry.redirects, entry.retries, entry.throttling, entry.strikes = counts
            at += _TRIES.size
        if flags & _DELAYED:
            (entry.due,) = _DUE.unpack_from(data, at)
            at += _DUE.size
        if flags & _CHAINED:
            chain, at = _read_text(data, at, _CHAIN_LENGTH)
            entry.chain = tuple(lengthen(text, host) for text in chain.split("\n"))
        if flags & _VIA:
            via, at = _read_text(data, at, _LENGTH)
            # No URL has a line end.
            via, _, entry.state = via.partition("\n")
            if via:
                # No shortened URL begins with a capital.
                url = via.lstrip(_PATH_LETTERS)
                entry.path, entry.via = via[: -len(url)].strip(), lengthen(url, host)
        if flags & _REQUEST:
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size
            end = at + length
            entry.request = data[end:]
        url = data[at:end].decode()
        if not flags & _WHOLE:
            url = f"{'https' if flags & _HTTPS else 'http'}://{host}{url}"
        entry.url = url
        return entry


def _read_text(data: bytes, at: int, length: struct.Struct) -> tuple[str, int]:
    """Return the text behind its length, and where it ends."""
    start = at + length.size
    end = start + int(length.unpack_from(data, at)[0])
    return data[start:end].decode(), end


def shorten(url: str, host: str) -> str:
    """Return a URL as it is stored: for one on ``host``, a digit and what follows the host."""
    is_https = url.startswith("https://")
    root = f"https://{host}" if is_https else f"http://{host}"
    return f"{is_https:d}{url[len(root) :]}" if url.startswith(f"{root}/") else url


def lengthen(text: str, host: str) -> str:
    """Return the URL that `shorten` has shortened; no whole URL begins with a digit."""
    return f"http{'s' * (text[0] == '1')}://{host}{text[1:]}" if text[:1] in ("0", "1") else text


def entry_of(key: bytes, value: bytes) -> Entry:
    """Return the entry under a queue or poison key."""
    return Entry.decode(value, host_in(key))


class EntryLine(Struct, kw_only=True, forbid_unknown_fields=True):
    """An entry as JSON, with the fields of `Entry`; ``request`` is base64.

    An unknown field is an error: a misspelt one would be lost silently.
    """

    url: str
    priority: _Priority = 0
    bare: bool = False
    depth: _Depth = 0
    redirects: Count = 0
    retries: Count = 0
    throttling: Count = 0
    chain: _Chain | UnsetType = UNSET
    via: str | UnsetType = UNSET
    # The path.
    hop: _Path | UnsetType = UNSET
    # The URL of the seed that it came from.
    seed: str | UnsetType = UNSET
    # Those of that seed, which may be the URL itself; see `words_of`.
    words: dict[str, Any] | UnsetType = UNSET
    request: bytes | UnsetType = UNSET
    # That of hooks, as JSON.
    hook_state: _HookState | UnsetType = UNSET
    state: _State = "queued"

    @classmethod
    def of_entry(cls, entry: Entry, priority: int, state: str) -> Self:
        line = cls(url=entry.url, priority=priority, depth=entry.depth, state=state)
        # One by one: nearly all entries have none of them, and each argument takes its time.
        if entry.redirects or entry.retries or entry.throttling:
            line.redirects, line.retries = entry.redirects, entry.retries
            line.throttling = entry.throttling
        if entry.bare:
            line.bare = True
        if entry.chain:
            line.chain = entry.chain
        if entry.via:
            line.via, line.hop = entry.via, entry.path or UNSET
        if entry.request:
            line.request = entry.request
        if entry.state:
            line.hook_state = entry.state
        return line

    def entry(self, url_max: int, key_of_seed: Callable[[str], bytes] = lambda _: b"") -> Entry:
        """Return the entry; ``key_of_seed`` returns the key of a seed.

        :raises ValueError: a URL is not valid, or has more than ``url_max`` characters
        """
        url = _normalised(self.url, url_max)
        seed = _normalised(self.seed, url_max) if self.seed else url
        return Entry(
            url,
            self.depth,
            self.redirects,
            self.retries,
            self.throttling,
            bare=self.bare,
            request=self.request or b"",
            chain=tuple([_normalised(url, url_max) for url in self.chain or ()]),
            via=_normalised(self.via, url_max) if self.via else "",
            path=(self.via and self.hop) or "",
            seed=b"" if seed == url else key_of_seed(seed),
            state=hook_state(self.hook_state or ""),
        )


def hook_state(text: str) -> str:
    """Return the state of a hook from outside, "" for none.

    :raises ValueError: it is no JSON
    """
    if text:
        msgspec.json.decode(text)
    return text


def _normalised(text: str, url_max: int) -> str:
    url = normalise(text)
    if url is None:
        kinds = "http or https" if text[:7] != "gemini:" else "http, https or (KROWL_GEMINI) gemini"
        raise ValueError(f"not an {kinds} URL, or one with a user name: {text[:80]!r}")
    if len(url) > url_max:
        raise ValueError(f"a URL of more than {url_max} characters")
    return url
