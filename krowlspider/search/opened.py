"""An index that is open for queries, while it may be written."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from krowlspider.errors import KrowlError, error_text, scrapy_with
from krowlspider.search.compiling import Compiler, languages_of
from krowlspider.search.forms import forms_in
from krowlspider.search.schema import (
    FORM,
    FORMS,
    LINKS,
    RANKS,
    SEGMENTS,
    STATE,
    analysers,
    open_forms,
    open_index,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from krowlspider.graph.ranks import HostRanks

# The file of tantivy that names the segments of the last commit.
_META = "meta.json"
# The files of a segment that it maps.
_MAPPED = frozenset({".del", ".fast", ".fieldnorm", ".idx", ".pos", ".store", ".term"})
# Languages of an index that are read.
_LANGUAGES_READ = 300
# Bytes of STATE.
_STATE_MAX = 16 * 1024 * 1024
# What a panic of Rust is called in Python. It is no Exception, and no module has it.
_PANIC = "PanicException"


class SearchError(KrowlError):
    """An index cannot be read. The message names it, and the way out."""


class _State(msgspec.Struct):
    """What is read of STATE."""

    form: int = 0
    jobdirs: list[str] = []


@dataclass(frozen=True, slots=True)
class CommitView:
    """An index as it was at one commit."""

    searcher: Any
    compiler: Compiler
    jobdirs: tuple[Path, ...]
    ranks: HostRanks | None

    @property
    def page_count(self) -> int:
        count: int = self.searcher.num_docs
        return count


class OpenedIndex:
    """The index in a folder. Any thread may ask for its `view`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._lock = threading.Lock()
        self._index: Any = None
        self._forms: Any = None
        self._analysers: Mapping[str, Any] = analysers()
        self._view: CommitView | None = None
        # What the files were when the view was made.
        self._stamp: tuple[tuple[int, int], ...] = ()
        # The mapped files, with inode and size.
        self._mapped: dict[Path, tuple[int, int]] = {}
        self._ranks: HostRanks | None = None
        self._ranks_stamp = (0, 0)

    @property
    def links(self) -> Path:
        return self.folder / LINKS

    def view(self) -> CommitView:
        """Return the index as of its last commit.

        :raises SearchError: it is missing, damaged, or of another form
        """
        with self._lock:
            self._check_mapped()
            stamp = tuple(map(_stamp, (self.folder / SEGMENTS / _META, self.folder / STATE)))
            stamp = (*stamp, _stamp(self.folder / RANKS))
            if self._view is None or stamp != self._stamp:
                self._view = self._look()
                self._stamp = stamp
            return self._view

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Ask a view.

        :raises SearchError: a file of the index is damaged, or gone
        """
        try:
            with _panics_as_errors():
                yield
        except (ValueError, OSError) as error:
            raise SearchError(
                f"the index {self.folder} could not answer: {error_text(error)[:200]}; if that goes"
                f" on, remove the folder and make it again: {self._way()}"
            ) from error

    def _check_mapped(self) -> None:
        """Let go of the index if a mapped file was cut: to read behind its end is a SIGBUS.

        A file that was removed stays whole as long as it is mapped.

        :raises SearchError: a file was cut
        """
        for path, (inode, size) in self._mapped.items():
            try:
                found = path.stat()
            except OSError:
                continue
            if found.st_ino == inode and found.st_size < size:
                self._index = self._view = None
                self._mapped = {}
                raise SearchError(
                    f"the index {self.folder} is damaged: {path} was {size:,} bytes and has"
                    f" {found.st_size:,}; remove the folder and make it again: {self._way()}"
                )

    def _look(self) -> CommitView:
        state = self._state()
        folder = self.folder / SEGMENTS
        try:
            with _panics_as_errors():
                # Before they are mapped, as a file may be cut at any time.
                mapped = _files_in(folder)
                view = self._opened(folder, state)
                self._mapped = mapped
                return view
        except (ValueError, OSError) as error:
            self._index = None
            raise SearchError(
                f"the index {self.folder} cannot be read: {error_text(error)[:200]}; if it is"
                f" damaged, remove the folder and make it again: {self._way()}"
            ) from error

    def _opened(self, folder: Path, state: _State) -> CommitView:
        if self._index is None:
            self._forms, self._index = open_forms(self.folder / FORMS), open_index(folder)
            for each in (self._forms, self._index):
                # Without a thread of tantivy that maps files anew: it would read what was cut.
                each.config_reader("manual")
        else:
            self._index.reload()
            # They are committed before the segments that have them.
            self._forms.reload()
        searcher = self._index.searcher()
        languages = languages_of(searcher.terms_with_prefix("lang", "", limit=_LANGUAGES_READ))

        def prefixed(name: str, prefix: str, limit: int) -> list[tuple[str, int]]:
            found: list[tuple[str, int]] = searcher.terms_with_prefix(name, prefix, limit=limit)
            return found

        def frequency(name: str, word: str) -> int:
            count: int = searcher.doc_freq(name, word)
            return count

        # Fields are known by their numbers, which are those of this index.
        compiler = Compiler(
            *(self._index.schema, self._analysers, prefixed, frequency, forms_in(self._forms)),
            languages=languages,
            documents=searcher.num_docs,
        )
        jobdirs = tuple(map(Path, state.jobdirs))
        return CommitView(searcher, compiler, jobdirs, self._host_ranks())

    def _state(self) -> _State:
        if not self.folder.is_dir():
            raise SearchError(f"there is no index {self.folder}: make it with {self._way()}")
        path = self.folder / STATE
        try:
            with path.open("rb") as file:
                state = msgspec.json.decode(file.read(_STATE_MAX), type=_State)
        except FileNotFoundError:
            raise SearchError(
                f"{self.folder} is no index, it has no {STATE}: make one with {self._way()}"
            ) from None
        except (OSError, msgspec.DecodeError) as error:
            raise SearchError(
                f"{path} cannot be read: {error_text(error)[:200]}; remove the folder and make the"
                f" index again: {self._way()}"
            ) from error
        if state.form != FORM:
            raise SearchError(
                f"the index {self.folder} has form {state.form}, and this version reads form"
                f" {FORM}: remove the folder and make it again: {self._way()}"
            )
        return state

    def _host_ranks(self) -> HostRanks | None:
        """Return the ranks of hosts; None if `scrapy graph` has made none."""
        path = self.folder / RANKS
        if (stamp := _stamp(path)) != self._ranks_stamp:
            self._ranks_stamp = stamp
            self._ranks = None
            if stamp != (0, 0):
                from krowlspider.graph.ranks import HostRanks  # noqa: PLC0415 - needs numpy

                self._ranks = HostRanks.open(path)
        return self._ranks

    def _way(self) -> str:
        return scrapy_with("index", "JOBDIR", "-o", self.folder)


@contextmanager
def _panics_as_errors() -> Iterator[None]:
    """Raise ValueError for a panic of tantivy, such as one over a damaged posting list."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise ValueError(error_text(error)) from error


def _files_in(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return inode and size of each file of segments by its path. Raises OSError."""
    found: dict[Path, tuple[int, int]] = {}
    for path in folder.iterdir():
        if path.suffix in _MAPPED:
            # A merge may have removed it.
            with suppress(FileNotFoundError):
                about = path.stat()
                found[path] = about.st_ino, about.st_size
    return found


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino
