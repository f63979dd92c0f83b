"""The links between pages, in the LevelDB that the builder keeps beside the segments.

A link has a key by its target and the host of its source, so a host counts once however many of its
pages link there, and writing a link again changes nothing. A page's own host may have a few anchors
instead. Nothing is read when a link is written.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec
import plyvel

from krowlspider.errors import KrowlError
from krowlspider.search.schema import key_of
from krowlspider.urls.canonical import host_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krowlspider.search.documents import IndexedLink

# Hosts with a link to a page of which anchors are taken, and hosts that are counted.
ANCHOR_HOSTS = 200
HOSTS_MAX = 10_000
# Anchors of a page that are indexed, and how often one that many hosts use.
ANCHORS_MAX = 50
_REPEATED = 3
# Links to a page that are returned, and sources of its own host that are kept.
INCOMING_MAX = 1_000
_OWN = 8
# Bytes that LevelDB collects in memory, at most twice.
_BUFFER = 32 * 1024 * 1024
_HOSTS_CACHED = 65_536
_IN, _OUT, PAGE = b"i", b"o", b"p"
_ID, _HOST = 16, 8


class Anchors(NamedTuple):
    """The anchors of links that lead to a page, those of other hosts first, and the number of
    hosts that have one, without the page's own; at most HOSTS_MAX."""

    texts: list[str]
    hosts: int

    @property
    def digest(self) -> bytes:
        """8 bytes, equal for equal anchors and numbers."""
        said = "\n".join([str(self.hosts), *self.texts])
        return blake2b(said.encode(errors="replace"), digest_size=8).digest()


class StoredPage(msgspec.Struct, array_like=True):
    """What is known of a page, by its id.

    ``latest`` sorts its last capture: time, number of the file, offset. The capture of its content
    is in ``file`` at ``offset``; ``file`` is -1 if there is none. ``first``, ``fetched`` and
    ``changed`` are seconds since 1970. ``fetched`` is when the present payload came. ``state`` is
    a `krowlspider.search.ledger.State`, ``reason`` why there is no document. ``is_written``: the
    segments may have a document of it. ``core`` and ``exact`` are those of the text that was read
    last. ``anchors`` is the digest of the anchors that are indexed, ``hosts`` the
    number of their hosts. ``original`` is the page of which this one is a copy.
    """

    url: str
    latest: tuple[str, int, int] = ("", -1, -1)
    file: int = -1
    offset: int = -1
    length: int = 0
    at: tuple[int, int] = (-1, -1)
    digest: str = ""
    first: int = 0
    fetched: int = 0
    changed: int = 0
    state: int = 0
    is_gone: bool = False
    is_written: bool = False
    reason: str = ""
    exact: bytes = b""
    core: bytes = b""
    original: bytes = b""
    anchors: bytes = b""
    hosts: int = 0


_page = msgspec.msgpack.Decoder(StoredPage).decode
pack = msgspec.msgpack.Encoder().encode


@lru_cache(_HOSTS_CACHED)
def host_hash(host: str) -> bytes:
    return blake2b(host.encode(), digest_size=_HOST).digest()


class LinkStore:
    """The links of an index, in the folder INDEX/links. Only one process may have it open.

    :raises KrowlError: another process has it open, or it is damaged
    """

    def __init__(self, path: Path, *, make: bool = False):
        try:
            self.db: Any = plyvel.DB(
                str(path),
                create_if_missing=make,
                bloom_filter_bits=10,
                write_buffer_size=_BUFFER,
                lru_cache_size=_BUFFER,
            )
        except plyvel.Error as error:
            raise KrowlError(
                f"the links of the index in {path} cannot be opened: {error}. Is another"
                " scrapy index at work there?"
            ) from error
        self._copy: Path | None = None

    @classmethod
    def of_copy(cls, path: Path) -> Self:
        """Return the store as it is now, which `close` removes, while a builder may be at work.

        :raises KrowlError: there is none, or it cannot be read
        """
        folder = Path(mkdtemp(prefix="links-", dir=path.parent))
        try:
            _copy(path, folder)
            store = cls(folder)
        except (OSError, KrowlError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise KrowlError(f"the links of the index in {path} cannot be read: {error}") from error
        store._copy = folder
        return store

    def close(self) -> None:
        self.db.close()
        if self._copy is not None:
            shutil.rmtree(self._copy, ignore_errors=True)

    def page(self, key: bytes) -> StoredPage | None:
        """Return what is known of the page with this `key_of`."""
        value = self.db.get(PAGE + key)
        return None if value is None else _page(value)

    def replace(self, batch: Any, source: str, links: Sequence[IndexedLink]) -> list[bytes]:
        """Put the links of a page in the place of those it had; return the keys of their targets,
        and of those to which it has no link any more."""
        key, host = key_of(source), host_hash(host_of(source))
        known = self.db.get(_OUT + key)
        urls = [each.target for each in links]
        batch.put(_OUT + key, "\n".join(urls).encode(errors="replace"))
        targets = [key_of(url) for url in urls]
        changed = [each for each in targets if each != key]
        for target, link in zip(targets, links, strict=True):
            if target != key:
                slot = _slot(link.target, host, key)
                batch.put(_IN + target + host + slot, key + link.anchor.encode(errors="replace"))
        if known:
            gone = {key_of(url): url for url in known.decode().split("\n")}
            for target, url in gone.items() - dict(zip(targets, urls, strict=True)).items():
                if target in targets:
                    continue
                at = _IN + target + host + _slot(url, host, key)
                # Another page of the host may have this place now.
                if (self.db.get(at) or b"")[:_ID] == key:
                    batch.delete(at)
                    changed.append(target)
        return changed

    def outgoing(self, url: str) -> list[str]:
        """Return the targets of the links of a page, in their order."""
        value = self.db.get(_OUT + key_of(url))
        return value.decode().split("\n") if value else []

    def incoming(self, url: str) -> list[tuple[str, str]]:
        """Return (source, anchor) of links to a page: one of each host that has one, at most
        INCOMING_MAX."""
        found = []
        for value in self.db.iterator(prefix=_IN + key_of(url), include_key=False):
            source = self.page(value[:_ID])
            if source is not None:
                found.append((source.url, value[_ID:].decode()))
            if len(found) == INCOMING_MAX:
                break
        return found

    def anchors(self, url: str) -> Anchors:
        """Return what `LinksIn.anchors` returns, of the present links."""
        return LinksIn(self.db).anchors(url)


class LinksIn:
    """The links to pages as they are when this is made; later ones do not count.

    It keeps the old files of the store in use, so it is for a short time only.
    """

    def __init__(self, db: Any):
        self._at = db.raw_iterator()

    def close(self) -> None:
        self._at.close()

    def anchors(self, url: str) -> Anchors:
        """Return the anchors of links to a page: each as often as hosts use it, at most three
        times, the most frequent first; those of its own host at the end."""
        own, prefix, at = host_hash(host_of(url)), _IN + key_of(url), self._at
        others: dict[str, int] = {}
        ours: set[str] = set()
        hosts = 0
        at.seek(prefix)
        while at.valid() and hosts < HOSTS_MAX:
            key, value = at.item()
            if not key.startswith(prefix):
                break
            at.next()
            text = value[_ID:].decode()
            if key.startswith(own, len(prefix)):
                ours.add(text)
                continue
            hosts += 1
            if hosts <= ANCHOR_HOSTS and text:
                others[text] = others.get(text, 0) + 1
        texts: list[str] = []
        for text in sorted(others, key=lambda each: (-others[each], each)):
            texts += [text] * min(others[text], _REPEATED)
        texts += [text for text in sorted(ours) if text and text not in others]
        return Anchors(texts[:ANCHORS_MAX], hosts)


def _slot(target: str, host: bytes, source: bytes) -> bytes:
    """Return the place of a link beside others of its host: a few for pages of the same host."""
    try:
        is_own = host_hash(host_of(target)) == host
    except ValueError:
        is_own = False
    return bytes((source[0] % _OWN,)) if is_own else b"\0"


def _copy(path: Path, folder: Path) -> None:
    """Copy a LevelDB: its tables, which never change, by links. A table that a compaction removes
    in between makes the copy unreadable."""
    for name in ("CURRENT", *(each.name for each in path.glob("MANIFEST-*"))):
        shutil.copyfile(path / name, folder / name)
    for log in path.glob("*.log"):
        shutil.copyfile(log, folder / log.name)
    for table in path.glob("*.ldb"):
        with suppress(FileNotFoundError):
            os.link(table, folder / table.name)
