"""Seeds and the arguments of the broad spider."""

from __future__ import annotations

import gzip
import logging
import os
import re
import zlib
from contextlib import suppress
from itertools import islice
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any

from krowlspider.errors import SeedsError
from krowlspider.frontier.seed_table import SeedLine
from krowlspider.urls.scope import AskedScope, ScopeRules
from krowlspider.urls.seeds import (
    BadSeed,
    ListLine,
    Seed,
    SeedWords,
    parse_seed,
    seed_lines,
    split_words,
    without_credentials,
)
from krowlspider.urls.seeds_given import is_file_name, way_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def number(name: str, text: str, meaning: str) -> int:
    """Return a number from 0 on; ``meaning`` completes the error, as "0 for no limit"."""
    try:
        found = int(text)
    except ValueError:
        found = -1
    if found < 0:
        raise SeedsError(f"-a {name}={text}: give a whole number, {meaning}")
    return found


def asked_scope(scope: str | None, **texts: str | None) -> AskedScope:
    """Return the rules that are given, by the names of `ScopeRules`; None is not given.

    ``scope`` is "new" if they replace those that the JOBDIR keeps.
    """
    if scope not in {None, "new"}:
        raise SeedsError(f"-a scope={scope}: give new, or leave it out")
    given = {name: _READERS[name](name, text) for name, text in texts.items() if text is not None}
    try:
        rules = ScopeRules(**given)
    except ValueError as error:
        raise SeedsError(str(error)) from error
    return AskedScope(rules, given=bool(given), replaces=scope == "new")


def asked_until(until: str | None) -> bool:
    """Return whether the crawl stops once all seeds are done."""
    if until not in {None, "seeds"}:
        raise SeedsError(f"-a until={until}: give seeds, or leave it out")
    return until is not None


def refuse_words(seeds: SeedsFile | SeedList) -> None:
    """:raises SeedsError: a seed has words; the crawl keeps no rows of pages, which they need"""
    seeds.text()
    if seeds.has_words:
        raise SeedsError(
            f"{seeds.source} has seeds with words, which need the rows of pages: set"
            " KROWL_PAGES=True"
        )


def _depth(name: str, text: str) -> int:
    return number(name, text, "0 for only the seeds; leave it out for no limit")


def _patterns(_: str, text: str) -> tuple[str, ...]:
    """Return the expressions in alphabetical order: theirs has no meaning."""
    return tuple(sorted(set(text.split())))


def _flag(name: str, text: str) -> bool:
    if text.lower() not in {"0", "1", "true", "false"}:
        raise SeedsError(f"-a {name}={text}: give 1 or 0")
    return text.lower() in {"1", "true"}


_READERS: dict[str, Callable[[str, str], Any]] = {
    "max_depth": _depth,
    "allow": _patterns,
    "deny": _patterns,
    "same_host": _flag,
    "same_domain": _flag,
}


logger = logging.getLogger(__name__)

# Seeds read and queued between two turns of the event loop, so that no turn is long.
_CHUNK = 500
# Bad lines logged as warnings; further ones are counted and logged at DEBUG.
_BAD_LOGGED = 20
# Bytes read to distinguish a text file from a binary file.
_PROBE = 8192
# Bytes read at once for the archive.
_PIECE = 65536
# Bytes of seeds that go into the archive.
TEXT_MAX = 10 * 1024 * 1024
# Words behind a tab, and bytes in which they may begin.
_WORDS = re.compile(rb"\t[ \t]*\{")
_WORDS_MAX = 64
_GZIP_MAGIC = b"\x1f\x8b"


class SeedList:
    """Seeds that are given with commas between them. ``good``, ``bad`` and ``has_words`` are as of
    `SeedsFile`. Only a single seed can have words with a comma in them.

    :raises SeedsError: a part of the text is no seed, or there is none
    """

    source = "the command line"
    bad = 0

    def __init__(self, text: str):
        self._parts = text.split(",")
        shown = ",".join(map(without_credentials, self._parts))[:200]
        try:
            seeds = [parse_seed(part.encode(errors="surrogateescape")) for part in self._parts]
        except BadSeed as error:
            raise SeedsError(
                f"-a seeds={shown!r}: {error}; give a file, or URLs and domains with commas"
                " between them (%2C is a comma in a URL)"
            ) from error
        self.name = f"-a seeds={shown}"
        self._lines = [
            SeedLine(
                number,
                without_credentials(split_words(part)[0].strip()),
                seed.url,
                bare=seed.bare,
                words=seed.words,
            )
            for number, (part, seed) in enumerate(zip(self._parts, seeds, strict=True), 1)
            if seed is not None
        ]
        self.good = len(self._lines)
        self.has_words = any(line.words for line in self._lines)
        if not self.good:
            raise SeedsError(f"-a seeds={shown!r} has no seed: give a file, a URL or a domain")

    def text(self) -> tuple[bytes, bool]:
        """Return the seeds one a line, as `SeedsFile.text` does."""
        return "".join(f"{part.strip()}\n" for part in self._parts).encode(
            errors="surrogateescape"
        ), False

    def chunks(self) -> Iterator[list[SeedLine]]:
        """Yield chunks as `SeedsFile.chunks` does."""
        return in_chunks(iter(self._lines))


def seeds_of(given: str) -> SeedsFile | SeedList:
    """Return the seeds in the file at ``given``, or those that ``given`` lists.

    A file that exists wins. Text with a scheme, or of domains only, is a list.

    :raises SeedsError: there is neither
    """
    if not given.strip():
        raise SeedsError("-a seeds= is empty: give a file, or URLs and domains")
    # Path.exists() raises for a list that is a long name.
    exists = os.path.exists(given)  # noqa: PTH110
    if not (exists or is_file_name(given)):
        return SeedList(given)
    try:
        return SeedsFile(Path(given))
    except SeedsError as error:
        if exists or not (way := way_out(given)):
            raise
        raise SeedsError(f"{error}{way}") from error


class SeedsFile:
    """A file of seeds, plain or gzip.

    ``good`` and ``bad`` count the lines read so far. ``name`` is the same for the same file.
    ``has_words`` is whether a line has words, once `text` has read it. Then each seed of the file
    has some, which may be empty: what comes from it is counted.

    A pipe is copied into a temporary file first, because the seeds are read more than once.

    :raises SeedsError: the file is missing, unreadable or binary
    """

    def __init__(self, path: Path):
        self.path = self._readable = path
        self.source = str(path)
        self.name = str(path.absolute())
        self.good = 0
        self.bad = 0
        self.has_words = False
        try:
            if path.is_fifo():
                self._readable = Path(f"/dev/fd/{_copied(path)}")
            with self._open() as file:
                probe = file.read(_PROBE)
        except (OSError, EOFError, zlib.error) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise SeedsError(f"seeds file {path} cannot be read: {reason}") from error
        if b"\0" in probe:
            raise SeedsError(
                f"seeds file {path} is binary: give text in UTF-8, one domain or URL a line, or a"
                " gzip of it; scrapy seeds converts a zip file"
            )

    def _open(self) -> IO[bytes] | gzip.GzipFile:
        file = self._readable.open("rb")
        if file.read(2) == _GZIP_MAGIC:
            file.close()
            return gzip.open(self._readable, "rb")
        file.seek(0)
        return file

    def text(self) -> tuple[bytes, bool]:
        """Return the lines of the file, TEXT_MAX bytes at most, and whether there are more.

        User names and passwords are left out. The lines end at a read error, which `chunks` logs.
        Blocks.
        """
        content = bytearray()
        end = b""
        with suppress(OSError, EOFError, zlib.error), self._open() as file:
            while (piece := file.read(_PIECE)) and (len(content) <= TEXT_MAX or not self.has_words):
                self.has_words = self.has_words or bool(_WORDS.search(end + piece))
                end = piece[-_WORDS_MAX:]
                if len(content) <= TEXT_MAX:
                    content += piece
        truncated = len(content) > TEXT_MAX
        if truncated:
            del content[content.rfind(b"\n", 0, TEXT_MAX) + 1 or TEXT_MAX :]
        text = without_credentials(content.decode(errors="surrogateescape"))
        return text.encode(errors="surrogateescape"), truncated

    def chunks(self) -> Iterator[list[SeedLine]]:
        """Yield the lines that are no comments, in chunks. A bad one is logged with its number."""
        return in_chunks(self._seeds())

    def _seeds(self) -> Iterator[SeedLine]:
        with self._open() as file:
            for number, line in enumerate(self._lines(file), 1):
                try:
                    seed = parse_seed(line)
                except BadSeed as error:
                    self._report(number, error)
                    yield SeedLine(number, shown(line), "", str(error))
                    continue
                if seed is not None:
                    self.good += 1
                    yield self._line(number, line, seed)

    def _line(self, number: int, line: bytes, seed: Seed) -> SeedLine:
        if not self.has_words:
            return SeedLine(number, shown(line), seed.url, bare=seed.bare)
        text = shown(split_words(line.decode())[0].encode())
        words = seed.words or SeedWords()
        return SeedLine(number, text, seed.url, bare=seed.bare, words=words)

    def _lines(self, file: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
        """Yield the lines of the file, up to the first read error, which is logged."""
        try:
            yield from seed_lines(file)
        except (OSError, EOFError, zlib.error) as error:
            logger.error("%s ends early: %s; the seeds before that are crawled", self.path, error)

    def _report(self, number: int, error: BadSeed) -> None:
        self.bad += 1
        level = logging.WARNING if self.bad <= _BAD_LOGGED else logging.DEBUG
        way = "; scrapy seeds converts such lists" if isinstance(error, ListLine) else ""
        logger.log(level, "%s line %d skipped: %s%s", self.path, number, error, way)
        if self.bad == _BAD_LOGGED + 1:
            logger.warning("%s: further bad lines are logged with LOG_LEVEL=DEBUG", self.path)


def _copied(path: Path) -> int:
    """Return the descriptor of a copy of all that a pipe gives.

    The copy has no name on the disk. It stays open until the process ends.
    """
    with TemporaryFile() as copy, path.open("rb") as pipe:
        copyfileobj(pipe, copy)
        copy.flush()
        return os.dup(copy.fileno())


def in_chunks(lines: Iterator[SeedLine]) -> Iterator[list[SeedLine]]:
    """Yield lines in chunks, as `SeedsFile.chunks` does."""
    while chunk := list(islice(lines, _CHUNK)):
        yield chunk


def shown(line: bytes) -> str:
    """Return a line for people: without a user name and a password."""
    return without_credentials(line.decode(errors="replace").strip())
