"""What is recorded of a crawl for its report, and the tables that are read from its frontier.

Each table has a bounded number of rows. A thread makes the tables, in slices that leave the event
loop its turns. Rows of long tables are on disk.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice, pairwise
from operator import itemgetter
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Struct

from krowlspider.errors import error_text, kind_words
from krowlspider.frontier.hosts.host import Health
from krowlspider.frontier.hosts.host_record import HostFigures, figures_in
from krowlspider.frontier.outcomes import read_counts, read_prices
from krowlspider.frontier.pages.seed_names import has_words, keys_of_seeds
from krowlspider.frontier.seed_limits import LIMITS, left_out_reader
from krowlspider.frontier.seed_table import ELSEWHERE, GIVEN, KNOWN, SeedRow, line_counts, read_rows
from krowlspider.frontier.stopped import fetched_in, read_counters
from krowlspider.frontier.store.schema import host_key
from krowlspider.frontier.store.store import STORE_ERRORS, LevelStore, Store, records
from krowlspider.job.status import by_last_part
from krowlspider.urls.canonical import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from krowlspider.frontier.seed_words import SeedFetches
    from krowlspider.job.job import Job

_T = TypeVar("_T")
# Items worked on at a time, 1 to 2 ms, and seconds that the event loop gets after them.
SLICE = 200
_PAUSE = 0.0002

Row = tuple[str | int | float, ...]
_MOVED = "moved or forgotten"

# Rows of the tables of hosts.
HOSTS_MAX = 1000
SLOWEST_MAX = 100
# Seconds of reading host records, after which the tables of hosts have those read so far.
_TIME_LIMIT = 30.0

_HOST = ("host", "pages", "dropped", "queued", "state", "latency (s)", "errors")
_PRICES = ("host", "last price", "answers 402")
_STATUS = ("status", "done", "dropped")
SEED_COLUMNS = (
    *("line", "seed", "outcome", "status", "redirected to"),
    *("pages of its host", "queued of its host", "left out", "source"),
)
_FETCHED = ("pages", "bytes", "first fetch", "last fetch")
# Further columns, where a seed has words.
WORDS_COLUMNS = ("tag", *_FETCHED)
TAG_COLUMNS = ("tag", "seeds", "done", "limited", "failed", "waiting", "other", *_FETCHED)
# The least status of a seed that has failed.
_ERROR = 400
# Tags with a row of their own; those beyond have one together.
TAGS_MAX = 10_000
_OTHER_TAGS = "(other tags)"
# The columns of outcomes that are no failure.
_ENDS = {
    "done": "done",
    **dict.fromkeys((*LIMITS, "seed_depth", "seed_pages"), "limited"),
    **dict.fromkeys(("queued", "deferred"), "waiting"),
    **dict.fromkeys((KNOWN, ELSEWHERE, _MOVED), "other"),
}


def in_slices(items: Iterable[_T], size: int = SLICE) -> Iterator[list[_T]]:
    """Yield the items in lists of at most ``size``. Sleep between two lists.

    Without the sleep each turn of the event loop waits for the interpreter for 5 ms.
    """
    left = iter(items)
    while some := list(islice(left, size)):
        yield some
        time.sleep(_PAUSE)


class ReportRows:
    """Rows in a file without a name, in the order in which they were added.

    :raises OSError: the file cannot be made, written or read
    """

    def __init__(self, folder: Path | None = None):
        self._file = TemporaryFile("w+", dir=folder, encoding="utf-8")
        self._count = 0

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._file.write(json.dumps(row) + "\n")
            self._count += 1

    def close(self) -> None:
        """Forget the rows."""
        self._file.close()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        self._file.seek(0)
        for line in self._file:
            yield tuple(json.loads(line))


class Table(Struct, frozen=True):
    """A table: ``name`` is that of its file. ``total`` is the number of rows that a table without
    a limit would have; 0 for one that has all."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[Row] | ReportRows
    total: int = 0

    @property
    def cut(self) -> str:
        """Return a line that says which rows are missing, "" if none is."""
        if self.total <= len(self.rows):
            return ""
        return f"{len(self.rows):,} of {self.total:,} rows"


class Tables(Struct, frozen=True):
    """All tables, with totals: ``done``, ``dropped``, ``queued``, ``hosts``, ``received`` bytes,
    ``began`` in epoch seconds and ``starts``. ``is_whole`` is false if the time did not suffice
    for all hosts. `close` them: the seeds are in a file."""

    totals: dict[str, int]
    tables: list[Table]
    is_whole: bool

    def close(self) -> None:
        for table in self.tables:
            if isinstance(table.rows, ReportRows):
                table.rows.close()


# Its name, and what its record says.
_Host = tuple[str, HostFigures]


class _Greatest:
    """The ``most`` hosts with the greatest ``key`` among those added whose key is above ``least``.

    ``least`` rises: no host of this key or below is among them.
    """

    def __init__(self, most: int, key: Callable[[_Host], Any], least: Any):
        self._most = most
        self._key = key
        self.least = least
        self._found: list[_Host] = []

    def add(self, host: _Host) -> None:
        """Add a host whose key is above ``least``."""
        self._found.append(host)
        # Most hosts of a large crawl are not above the least, and cost no sorting.
        if len(self._found) >= 2 * self._most:
            self._found = self.hosts()
            self.least = self._key(self._found[-1])

    def hosts(self) -> list[_Host]:
        """Return the hosts, the greatest first; of equal ones, the one that was added first."""
        return sorted(self._found, key=self._key, reverse=True)[: self._most]


class _Hosts:
    """The hosts with the most pages, and the slowest ones."""

    def __init__(self) -> None:
        self.count = 0
        self.queued = 0
        self.most = _Greatest(HOSTS_MAX, itemgetter(1), ())
        self.slowest = _Greatest(SLOWEST_MAX, lambda host: host[1].latency, 0.0)

    def add(self, hosts: list[_Host]) -> None:
        most, slowest = self.most, self.slowest
        self.count += len(hosts)
        for host in hosts:
            figures = host[1]
            self.queued += figures.queued
            if figures > most.least:
                most.add(host)
            if figures.latency > slowest.least:
                slowest.add(host)


def read_tables(store: Store, folder: Path | None = None, *, is_spent: bool = False) -> Tables:
    """Return the tables of a frontier. This may take many seconds: call it in a thread.

    ``folder`` has a file without a name for the rows of the seeds, until they are forgotten.
    ``is_spent``: the crawl has all pages of its ``max_pages``.

    :raises StoreError: the store cannot be read
    :raises OSError: that file cannot be written
    """
    counts, counters = read_counts(store), read_counters(store)
    hosts = _Hosts()
    end, is_whole = time.monotonic() + _TIME_LIMIT, True
    for read in in_slices(records(store)):
        hosts.add([(name, figures_in(record)) for name, record in read])
        if time.monotonic() > end:
            is_whole = False
            break
    seed_rows = ReportRows(folder)
    outcomes: Counter[str] = Counter()
    made = SeedRows([store], is_spent=is_spent)
    for seeds in in_slices(read_rows(store), SLICE // 2):
        rows = [made.row(store, seed) for seed in seeds]
        outcomes.update(str(row[2]) for row in rows)
        seed_rows.add(rows)
    dropped = by_last_part(counters, "dropped/")
    sizes = by_last_part(counts, "bytes/")
    types = [(name, n, sizes.get(name, 0)) for name, n in _sorted(by_last_part(counts, "type/"))]
    fetched = [(kind_words(kind), number) for kind, number in fetched_in(counters).items()]
    tables = [
        _counted("seed-outcomes", "Seeds by outcome", ("outcome", "seeds"), outcomes),
        Table("fetched", "What was fetched", ("what", "URLs"), fetched),
        Table("statuses", "Pages and redirects by status", _STATUS, _status_rows(counts)),
        Table("types", "Pages by media type", ("media type", "pages", "bytes"), types),
        _counted("drops", "Dropped URLs by reason", ("reason", "URLs"), dropped),
        Table(
            "hosts", "Hosts with the most pages", _HOST, _host_rows(hosts.most.hosts()), hosts.count
        ),
        Table("slowest", "The slowest hosts", _HOST, _host_rows(hosts.slowest.hosts())),
        *_seed_tables(seed_rows, sum(line_counts(store).values()), made.worded),
    ]
    if prices := read_prices(store):
        asking = sorted(prices.items(), key=lambda item: -item[1][1])
        priced: list[Row] = [(host, *price) for host, price in asking]
        tables.append(Table("prices", "Hosts that ask for a price", _PRICES, priced))
    totals = {
        "done": counters["done"],
        "dropped": sum(dropped.values()),
        "queued": hosts.queued,
        "hosts": hosts.count,
        "received": counts["received"],
        "began": counts["began"],
        "starts": counts["starts"],
    }
    return Tables(totals, tables, is_whole)


def _status_rows(counts: Counter[str]) -> list[Row]:
    done, dropped = by_last_part(counts, "status/"), by_last_part(counts, "dropped_status/")
    names = sorted({**done, **dropped}, key=lambda name: (-done.get(name, 0), name))
    return [(name, done.get(name, 0), dropped.get(name, 0)) for name in names]


def _host_rows(hosts: Iterable[_Host]) -> list[Row]:
    return [
        (
            name,
            found.pages,
            found.dropped,
            found.queued,
            found.health.words,
            round(found.latency, 3),
            found.errors,
        )
        for name, found in hosts
    ]


def _seed_tables(rows: ReportRows, total: int, worded: WordedRows | None) -> list[Table]:
    """Return the table of the seeds, and before it, where a seed has words, that of the tags."""
    if worded is None:
        return [Table("seeds", "Seeds", SEED_COLUMNS, rows, total)]
    columns = SEED_COLUMNS + WORDS_COLUMNS
    for _ in in_slices(worded.sum_up()):
        pass
    return [
        Table("tags", "Seeds by tag", TAG_COLUMNS, worded.tag_rows()),
        Table("seeds", "Seeds", columns, rows, total),
    ]


class WordedRows:
    """Adds to the rows of seeds what their words say, and what was fetched from them, and counts
    both by tag. ``stores`` are those of all nodes."""

    def __init__(self, stores: Sequence[Store]):
        # Most crawls have no seed with words.
        from krowlspider.frontier import seed_words  # noqa: PLC0415

        self._stores = stores
        self._read = seed_words
        self._seeds: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._fetched: defaultdict[str, SeedFetches] = defaultdict(seed_words.SeedFetches)

    @classmethod
    def of(cls, stores: Sequence[Store]) -> WordedRows | None:
        """Return them; None where no seed has words."""
        return cls(stores) if any(map(has_words, stores)) else None

    def of_key(self, key: bytes) -> tuple[str, SeedFetches] | None:
        """Return the tag of a seed, and what was fetched from it; None if it has no words."""
        said = (self._read.read_words(store, key) for store in self._stores)
        words = next((each for each in said if each is not None), None)
        if words is None:
            return None
        return words.tag, self._read.fetched_from(self._stores, key)

    def add(self, words: tuple[str, SeedFetches] | None, outcome: str) -> Row:
        """Count a seed, and return the WORDS_COLUMNS of its row."""
        tag = "" if words is None else words[0]
        self._count(tag, outcome)
        return ("",) * len(WORDS_COLUMNS) if words is None else (tag, *_figures(words[1]))

    def _count(self, tag: str, outcome: str) -> None:
        of = "limited" if outcome.startswith("limited: ") else _ENDS.get(outcome, "failed")
        counts = self._seeds[self._known(tag)]
        counts[of] += 1
        counts["seeds"] += 1
        counts["elsewhere"] += outcome == ELSEWHERE
        counts["invalid"] += outcome.startswith("invalid: ")

    def _known(self, tag: str) -> str:
        return tag if tag in self._seeds or len(self._seeds) < TAGS_MAX else _OTHER_TAGS

    def sum_up(self) -> Iterator[None]:
        """Add up what was fetched by tag. A step is one seed."""
        for store in self._stores:
            for key, words in self._read.worded(store):
                tag = self._known(words.tag)
                self._fetched[tag].add(self._read.fetched_from([store], key))
                yield

    def tag_rows(self) -> list[Row]:
        """Return the rows of the tags, once all was added up. Seeds without a tag have "" in its
        place."""
        rows: list[Row] = []
        for tag in sorted({*self._seeds, *self._fetched}):
            counts = self._seeds.get(tag, Counter())
            numbers = (counts[name] for name in TAG_COLUMNS[1 : -len(_FETCHED)])
            rows.append((tag, *numbers, *_figures(self._fetched[tag])))
        return rows

    def named_tags(self) -> list[dict[str, str | int]]:
        """Return `tag_rows` by their names, with how many seeds of a tag are at other nodes, and
        how many are none."""
        rows = _named(TAG_COLUMNS, self.tag_rows())
        for row in rows:
            counts = self._seeds.get(str(row["tag"]), Counter())
            row.update({name: counts[name] for name in ("elsewhere", "invalid")})
        return rows


def _figures(found: SeedFetches) -> tuple[int, int, str, str]:
    return found.pages, found.size, _time(found.first), _time(found.last)


def _time(seconds: float) -> str:
    """Return a time in UTC; "" for 0."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}" if seconds else ""


@dataclass(frozen=True, slots=True)
class SeedReport:
    """The first rows of seeds, how many there are in ``total``, and the rows of all tags; by the
    names of their columns. Those of tags also say how many of their seeds are ``elsewhere``, at
    other nodes, and how many lines are ``invalid``."""

    total: int
    seeds: list[dict[str, str | int]]
    tags: list[dict[str, str | int]]


def report_seeds(
    store: Store, tag: str | None, limit: int, *, is_spent: bool = False
) -> Iterator[SeedReport | None]:
    """Yield None after each seed, which takes some 20 µs, and at last the report of the seeds of a
    running crawl: the first ``limit`` rows, with a ``tag`` only those that have it. Without rows to
    give, and without words, nothing is read. ``is_spent`` as of `read_tables`."""
    made = SeedRows([store], is_spent=is_spent)
    worded = made.worded
    columns = SEED_COLUMNS if worded is None else SEED_COLUMNS + WORDS_COLUMNS
    rows: list[Row] = []
    total = 0
    for seed in read_rows(store) if limit or worded is not None else ():
        row = made.row(store, seed)
        if tag is None or (worded is not None and row[len(SEED_COLUMNS)] == tag):
            total += 1
            if len(rows) < limit:
                rows.append(row)
        yield None
    if worded is not None:
        yield from worded.sum_up()
    tags = [] if worded is None else worded.named_tags()
    yield SeedReport(total, _named(columns, rows), tags)


def _named(columns: Sequence[str], rows: Iterable[Row]) -> list[dict[str, str | int]]:
    names = [name.replace(" ", "_") for name in columns]
    return [dict(zip(names, row, strict=True)) for row in rows]  # type: ignore[arg-type]


class SeedRows:
    """Makes the rows of the table of seeds. ``stores`` are those of all nodes. ``is_spent``: the
    crawl has all pages of its ``max_pages``. ``worded`` is None where no seed has words."""

    def __init__(self, stores: Sequence[Store], *, is_spent: bool):
        self._is_spent = is_spent
        self._left_out = left_out_reader(stores)
        self._key_of = keys_of_seeds(stores[0])
        self.worded = WordedRows.of(stores)

    def row(self, store: Store, seed: SeedRow) -> Row:
        """Return the row of a seed; ``store`` has the record of its host."""
        record = store.get(host_key(host_of(seed.url))) if seed.url else None
        found = None if record is None else figures_in(record)
        pages, queued = (0, 0) if found is None else (found.pages, found.queued)
        line = seed.line
        key = b""
        if line.url and (self.worded is not None or self._left_out is not None):
            key = self._key_of(line.url)
        words = None if self.worded is None else self.worded.of_key(key)
        left = {} if words is None else words[1].left_out
        if self._left_out is not None and key:
            left |= {LIMITS[each]: count for each, count in self._left_out(key).items()}
        limits = [*left]
        if self._is_spent and queued:
            limits.append("max_pages of the crawl")
        outcome = _outcome(seed, found, limits)
        elsewhere = "" if seed.url == line.url else seed.url
        text = ", ".join(f"{name}: {count}" for name, count in left.items()) if left else ""
        row = (line.number, line.text, outcome, seed.status or "", elsewhere, pages, queued, text)
        if self.worded is None:
            return (*row, seed.source)
        return (*row, seed.source, *self.worded.add(words, outcome))


def _outcome(seed: SeedRow, host: HostFigures | None, limits: Sequence[str]) -> str:
    """Return what became of a seed; ``limits`` are those that left URLs of it out."""
    if seed.outcome == "done":
        if seed.status >= _ERROR:
            return f"failed: status {seed.status}"
        return f"limited: {', '.join(limits)}" if limits else "done"
    if seed.outcome:
        return f"invalid: {seed.line.error}" if seed.outcome == "invalid" else seed.outcome
    if host is None:
        return _MOVED
    return "deferred" if host.health is Health.DEFERRED else "queued"


def _sorted(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _counted(name: str, title: str, columns: tuple[str, str], counts: Mapping[str, int]) -> Table:
    return Table(name, title, columns, _sorted(counts))


logger = logging.getLogger(__name__)

# Seconds between two samples at first, and samples kept. Twice as many seconds, once there are as
# many.
INTERVAL = 10.0
KEPT = 400
# What a sample has: epoch seconds, then figures over all starts.
FIELDS = ("time", "done", "dropped", "queued")
# The folder in JOBDIR, and samples after which the figures are saved.
_FOLDER = "reports"
_SAVE_EACH = 6
# Intervals after which a crawl did not run between two samples.
_STOP = 3.0


class Course:
    """Samples of a crawl's figures over all its starts, in ever coarser steps.

    ``path`` is the file that keeps them. ``ran`` are the seconds in which the crawl ran.

    A file that cannot be read or written costs the charts their past, and nothing else.
    """

    def __init__(self, path: Path):
        self._path = path
        self.interval = INTERVAL
        self.ran = 0.0
        self.samples: list[list[float]] = []
        with suppress(OSError, ValueError, TypeError, KeyError):
            saved = json.loads(path.read_bytes())
            samples = [[float(value) for value in sample] for sample in saved["samples"]]
            if all(len(sample) == len(FIELDS) for sample in samples):
                self.samples = samples[:KEPT]
                self.interval = max(INTERVAL, float(saved["interval"]))
                # Missing in the file of an older release.
                self.ran = float(saved.get("ran", sum(self.steps())))

    def add(self, now: float, figures: Mapping[str, float], *, always: bool = False) -> None:
        """Add the figures at ``now``, in epoch seconds, unless the last sample is too recent."""
        # A timer may end a little early.
        is_recent = self.samples and now - self.samples[-1][0] < 0.9 * self.interval
        if is_recent and not always:
            return
        self.samples.append([round(now, 1), *(figures[name] for name in FIELDS[1:])])
        if len(self.samples) >= KEPT:
            self.samples = self.samples[::2]
            self.interval *= 2

    def steps(self) -> list[float]:
        """Return the seconds from each sample to the next. What is much longer than the interval is
        time between two starts, and counts as none."""
        times = [sample[0] for sample in self.samples]
        steps = [later - earlier for earlier, later in pairwise(times)]
        return [step if 0 <= step <= _STOP * self.interval else 0.0 for step in steps]

    def write(self) -> None:
        """Write the samples to the file; make its folder if need be."""
        draft = self._path.with_name(f"{self._path.name}.new")
        saved = {"interval": self.interval, "ran": round(self.ran, 1), "fields": FIELDS}
        saved |= {"samples": self.samples}
        with suppress(OSError):
            self._path.parent.mkdir(exist_ok=True)
            draft.write_text(json.dumps(saved))
            draft.replace(self._path)


class ReportRecorder:
    """Records an open job until its end.

    `sample` is to be called every `INTERVAL` seconds. The job reads
    ``tables`` in a thread when it closes; None before, and if the frontier cannot be read.
    """

    def __init__(self, job: Job, is_spent: Callable[[], bool] = lambda: False):
        self._job = job
        self._is_spent = is_spent
        self._samples = 0
        self.folder = job.folder.path / _FOLDER
        self.course = Course(self.folder / "course.json")
        # Seconds in which the crawl ran before, and the clock of this start.
        self._ran, self._begun = self.course.ran, job.monotonic()
        self.tables: Tables | None = None
        job.at_close.append(self._read)

    def sample(self, *, always: bool = False) -> None:
        """Add the figures of now, as `Course.add`."""
        frontier = self._job.frontier
        figures = {
            "done": frontier.counters["done"],
            "dropped": sum(by_last_part(frontier.counters, "dropped/").values()),
            "queued": frontier.pending,
        }
        self.course.ran = self._ran + self._job.monotonic() - self._begun
        self.course.add(self._job.wall(), figures, always=always)
        self._samples += 1
        if self._samples % _SAVE_EACH == 0:
            self.course.write()

    def _read(self) -> None:
        try:
            self.folder.mkdir(exist_ok=True)
            self.tables = read_tables(self._job.store, self.folder, is_spent=self._is_spent())
        except (*STORE_ERRORS, OSError, ValueError) as error:
            logger.warning("No report: the frontier cannot be read: %s", error_text(error))

    def about(self, reason: str) -> dict[str, Any]:
        """Return what the report says of the crawl itself, which has ended now for a reason."""
        job = self._job
        return {
            "spider": job.spider,
            "folder": str(job.folder.path),
            "reason": reason,
            "ended": round(job.wall(), 1),
            "ran": round(self.course.ran, 1),
        }


class _AnyOf:
    """Stores of which one has a host's record. They can only be read."""

    def __init__(self, stores: Sequence[Store]):
        self._stores = stores

    def get(self, key: bytes) -> bytes | None:
        found = (store.get(key) for store in self._stores)
        return next((each for each in found if each is not None), None)


def _on_its_way(row: SeedRow) -> SeedRow:
    """Return a row; one that no process has an outcome for is in an outbox or in Redis."""
    return row._replace(outcome="queued") if row.outcome == ELSEWHERE else row


@contextmanager
def seeds_of_all(
    frontiers: Sequence[Path], folder: Path, *, is_spent: bool
) -> Iterator[list[Table]]:
    """Return the tables of the seeds in these frontiers, that of the lines last. A file in
    ``folder`` has its rows until the context ends. ``is_spent`` as of `read_tables`.

    :raises StoreError: a frontier is missing, damaged or in use
    :raises OSError: the file cannot be written
    """
    total = 0
    with ExitStack() as stack:
        rows = stack.enter_context(closing(ReportRows(folder)))
        stores = [stack.enter_context(closing(LevelStore(each))) for each in frontiers]
        made = SeedRows(stores, is_spent=is_spent)
        every, met = cast("Any", _AnyOf(stores)), set[str]()
        for lines in stores:
            # Several processes have read one source; each has lines of its own given by hand.
            counts = {name: n for name, n in line_counts(lines).items() if name not in met}
            others = [each for each in stores if each is not lines]
            found = (row for row in read_rows(lines, others) if row.source in counts)
            rows.add(made.row(every, _on_its_way(row)) for row in found)
            total += sum(counts.values())
            met |= counts.keys() - {GIVEN}
        yield _seed_tables(rows, total, made.worded)
