"""The metrics of all processes, added up at one address."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from krowlspider.errors import error_text
from krowlspider.job.monitoring.access import CONTROL_TOKEN, METRICS, PAGE, noted_url
from krowlspider.job.monitoring.endpoint import health

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from krowlspider.job.monitoring.endpoint import Route
    from krowlspider.node.tree import Tree

# Seconds in which a process answers, and for which one that does not is asked last.
_TIMEOUT = 4.5
_SILENT = 15.0
# Seconds for which a process may take no bytes of a file, or sync it.
_TIMEOUT_OF_FILE = 60.0
# Bytes of an answer: ten times what a process sends with all its series.
SIZE_MAX = 4_000_000


class Reply(NamedTuple):
    """The status and body of an answer."""

    status: int
    text: bytes

    @property
    def is_good(self) -> bool:
        return self.status == HTTPStatus.OK


async def asked(
    url: str,
    *,
    method: str = "GET",
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    seconds: float = _TIMEOUT,
) -> Reply:
    """Return the answer to a request.

    :raises TimeoutError: there is none within ``seconds``
    :raises aiohttp.ClientError: there is none
    :raises ValueError: it is larger than any process sends
    """
    # Nothing compressed, which could be larger than it looks.
    identity = {"Accept-Encoding": "identity"}
    async with (
        aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(seconds), headers=identity, auto_decompress=False
        ) as session,
        session.request(method, url, data=body, headers=headers) as response,
    ):
        found = bytearray()
        async for part in response.content.iter_any():
            found += part
            if len(found) > SIZE_MAX:
                raise ValueError(f"the answer has more than {SIZE_MAX:,} bytes")
        return Reply(response.status, bytes(found))


class Processes:
    """Asks the processes ``names`` below ``path``, which may become fewer.

    ``token`` is KROWL_CONTROL_TOKEN, "" without it.
    """

    def __init__(self, path: Path, names: Sequence[str], token: str):
        self.names = names
        self._path = path
        self._token = token
        # Until when a process that did not answer in time is asked last.
        self._silent: dict[str, float] = {}

    def url_of(self, process: str) -> str | None:
        """Return the URL of the page of a process; None if it has none now."""
        return noted_url(self._path / process, PAGE)

    def in_order(self) -> list[str]:
        """Return the processes with a page, those last that did not answer in time just now."""
        now = time.monotonic()
        with_page = [name for name in self.names if self.url_of(name) is not None]
        return sorted(with_page, key=lambda name: self._silent.get(name, 0.0) > now)

    async def ask_all(self, question: str, *, seconds: float = _TIMEOUT) -> dict[str, Reply]:
        """Return the answer of each process that has one within so many seconds."""
        names = list(self.names)
        asked = (self._request("GET", name, question, seconds=seconds) for name in names)
        found = await asyncio.gather(*asked)
        every = zip(names, found, strict=True)
        return {name: answer for name, answer in every if answer is not None}

    async def ask(self, process: str, question: str) -> Reply | None:
        """Return the answer of a process to a question; None without one."""
        return await self._request("GET", process, question)

    async def order(
        self, process: str, name: str, body: bytes, headers: Mapping[str, str]
    ) -> Reply | None:
        """Give a process an order, and return its answer; None without one."""
        every = {**headers, **self._access(process)}
        return await self._request("POST", process, name, body, every)

    async def submit(self, process: str, path: str, body: bytes | None) -> Reply | None:
        """Give a process a submission of IndexNow, by POST if it has a body. ``path`` has the
        query."""
        return await self._request("GET" if body is None else "POST", process, path, body)

    async def _request(
        self,
        method: str,
        process: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        seconds: float = _TIMEOUT,
    ) -> Reply | None:
        if (url := self.url_of(process)) is None:
            return None
        place = url + path if path.startswith("/") else f"{url}/api/v1/{path}"
        try:
            found = await asked(place, method=method, body=body, headers=headers, seconds=seconds)
        except TimeoutError:
            self._silent[process] = time.monotonic() + _SILENT
            return None
        except (aiohttp.ClientError, ValueError):
            return None
        self._silent.pop(process, None)
        return found

    async def send_file(
        self, process: str, pieces: AsyncIterator[bytes], headers: Mapping[str, str]
    ) -> Reply | None:
        """Send a process a file of URLs, and return its answer; None without one."""
        if (url := self.url_of(process)) is None:
            return None
        loop = asyncio.get_running_loop()

        def blocking() -> Iterator[bytes]:
            while True:
                future = asyncio.run_coroutine_threadsafe(_next(pieces), loop)
                if (piece := future.result()) is None:
                    return
                yield piece

        return await asyncio.to_thread(_send, url, blocking(), {**headers, **self._access(process)})

    def _access(self, process: str) -> dict[str, str]:
        token = self._token
        with suppress(OSError):
            token = token or (self._path / process / CONTROL_TOKEN).read_text().strip()
        return {"Authorization": f"Bearer {token}"}


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


def _send(url: str, pieces: Iterator[bytes], headers: Mapping[str, str]) -> Reply | None:
    """Send a file. An answer that comes before its end is read too: aiohttp's client loses it when
    the server has closed the connection."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=_TIMEOUT_OF_FILE)
    try:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request("POST", "/api/v1/import", pieces, dict(headers), encode_chunked=True)
        answer = connection.getresponse()
        return Reply(answer.status, answer.read())
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


_ADDED = ("counter", "histogram")
_START = "process_start_time_seconds"
_LABEL = r'[a-zA-Z_]\w*="(?:[^"\\]|\\.)*"'
_SERIES = re.compile(rf"[a-zA-Z_:][\w:]*(?:\{{{_LABEL}(?:,{_LABEL})*,?\}})?", re.ASCII)


@dataclass(slots=True, eq=False)
class ProcessMetrics:
    """The metrics of one process: the lines before the samples of each metric, its series that are
    added up, the others with their values, and the names of both."""

    heads: dict[str, list[str]] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    gauges: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


def read(text: str) -> ProcessMetrics:
    """Return the metrics of a process.

    :raises ValueError: the text is not in Prometheus' format
    """
    answer = ProcessMetrics()
    name, is_added, help_line = "", False, ""
    for line in filter(None, text.split("\n")):
        if line.startswith("# HELP "):
            help_line = line
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            is_added = kind in _ADDED
            answer.heads[name] = [help_line, line]
        else:
            series, _, value = line.rpartition(" ")
            if not (name and series.startswith(name) and _SERIES.fullmatch(series)):
                raise ValueError(f"not a sample of {name or 'a metric'}: {line[:80]!r}")
            number = float(value)
            answer.names[series] = name
            if is_added:
                answer.counts[series] = number
            else:
                answer.gauges[series] = value
    if not answer.names:
        raise ValueError("the answer has no metrics")
    return answer


class Sums:
    """Puts the metrics of processes together.

    Counters and histograms are added up: a process that dies or does not answer keeps its part, so
    that no sum falls. Gauges are those of the processes that answer, with the label ``process``.
    """

    def __init__(self) -> None:
        # The lines before the samples of each metric, and the series of those that are added up.
        self._heads: dict[str, list[str]] = {}
        self._series: dict[str, dict[str, None]] = {}
        # The counts of processes that have died, and of each process at its last answer.
        self._before: Counter[str] = Counter()
        self._counts: dict[str, dict[str, float]] = {}
        self._starts: dict[str, str] = {}

    def of(self, answers: Mapping[str, ProcessMetrics]) -> str:
        """Return the metrics of all processes; ``answers`` are of the ones that answer."""
        gauges: dict[str, list[str]] = {}
        for process, answer in answers.items():
            self._take(process, answer, gauges)
        total = self._before.copy()
        for counts in self._counts.values():
            total.update(counts)
        lines = []
        for name, head in self._heads.items():
            lines += head
            lines += [f"{series} {float(total[series])}" for series in self._series[name]]
            lines += gauges.get(name, ())
        return "".join(f"{line}\n" for line in lines)

    def _take(self, process: str, answer: ProcessMetrics, gauges: dict[str, list[str]]) -> None:
        for name, head in answer.heads.items():
            self._heads.setdefault(name, head)
            self._series.setdefault(name, {})
        for series in answer.counts:
            self._series[answer.names[series]][series] = None
        for series, value in answer.gauges.items():
            line = f"{_labelled(series, process)} {value}"
            gauges.setdefault(answer.names[series], []).append(line)
        if start := answer.gauges.get(_START):
            self._began(process, start)
        self._counts[process] = answer.counts

    def _began(self, process: str, start: str) -> None:
        """Keep the counts of the process of this name that has died, if this is a new one."""
        if self._starts.setdefault(process, start) != start:
            self._starts[process] = start
            self._before.update(self._counts.get(process, {}))


def _labelled(series: str, process: str) -> str:
    label = f'process="{process}"'
    return f"{series[:-1]},{label}}}" if series.endswith("}") else f"{series}{{{label}}}"


logger = logging.getLogger(__name__)

# Seconds in which a process answers, and for which the answer to a client is served again.
_METRICS_TIMEOUT = 3.0
_FRESH = 1.0
# Name, type, label and meaning of the metrics of the processes together.
OWN = (
    ("krowl_node_process_up", "gauge", "process", "1 if a process answers with its metrics."),
    (
        "krowl_node_restarts_total",
        "counter",
        "",
        "Times that a process died and was started again.",
    ),
    (
        "krowl_node_grpc_calls_total",
        "counter",
        "",
        "Calls by gRPC, refused ones included; from the first one on.",
    ),
    (
        "krowl_node_grpc_refused_total",
        "counter",
        "reason",
        "Calls by gRPC that were refused; from the first one on.",
    ),
)


class TreeMetrics:
    """Asks the processes of a tree for their metrics.

    ``restarts`` returns how many processes were started again; ``rpc`` the calls by gRPC by name,
    "call" being all of them and the others those refused.
    """

    def __init__(
        self,
        tree: Tree,
        path: str,
        processes: Sequence[str],
        restarts: Callable[[], int],
        rpc: Callable[[], Mapping[str, int]] = dict,
    ):
        self._tree = tree
        self._path = path
        self._processes = processes
        self._restarts = restarts
        self._rpc = rpc
        self._sums = Sums()
        # Processes whose last answer could not be used.
        self._unusable: set[str] = set()
        self._lock = asyncio.Lock()
        self._text = ""
        self._end = float("-inf")

    def routes(self) -> dict[str, Route]:
        """Return what answers at each path."""
        return {"/healthz": health, "/readyz": self._ready, self._path: self._answer}

    async def _ready(self, _: web.BaseRequest) -> web.Response:
        """Answer as the process that is not ready, if one is not."""
        every = await asyncio.gather(*map(self._why_not, self._processes))
        why_not = next(filter(None, every), "")
        return web.Response(text=f"{why_not or 'ready'}\n", status=503 if why_not else 200)

    async def _why_not(self, process: str) -> str:
        if (url := noted_url(self._tree.path / process, METRICS)) is None:
            return f"{process}: it does not run"
        try:
            reply = await asked(url.removesuffix(self._path) + "/readyz", seconds=_METRICS_TIMEOUT)
            return "" if reply.is_good else f"{process}: {reply.text.decode().strip()}"
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            return f"{process}: {error_text(error) or 'no answer'}"

    async def _answer(self, _: web.BaseRequest) -> web.Response:
        kind = {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
        return web.Response(body=(await self.text()).encode(), headers=kind)

    async def text(self) -> str:
        """Return the metrics of all, asked for at most a second ago."""
        async with self._lock:
            if time.monotonic() >= self._end:
                self._text = await self._ask_all()
                self._end = time.monotonic() + _FRESH
            return self._text

    async def _ask_all(self) -> str:
        names = list(self._processes)
        found = await asyncio.gather(*map(self._ask, names))
        answers = dict(zip(names, found, strict=True))
        used = {process: answer for process, answer in answers.items() if answer is not None}
        up = {f'{{process="{name}"}}': int(name in used) for name in names}
        refused = {f'{{reason="{name}"}}': count for name, count in sorted(self._rpc().items())}
        calls = refused.pop('{reason="call"}', None)
        called = {} if calls is None else {"": calls}
        own = up, {"": self._restarts()}, called, refused
        lines = []
        for (name, kind, _, text), values in zip(OWN, own, strict=True):
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{labels} {value}" for labels, value in values.items()]
        return "".join(f"{line}\n" for line in lines) + self._sums.of(used)

    async def _ask(self, process: str) -> ProcessMetrics | None:
        """Return the metrics of a process; None if it does not answer, or with something else."""
        if (url := noted_url(self._tree.path / process, METRICS)) is None:
            return None
        try:
            reply = await asked(url, seconds=_METRICS_TIMEOUT)
            if not reply.is_good:
                return None
            answer = read(reply.text.decode())
        except (aiohttp.ClientError, TimeoutError):
            return None
        except ValueError as error:
            if process not in self._unusable:
                self._unusable.add(process)
                logger.warning(
                    "Metrics of process %s left out until they are valid again: %s (asked at %s)",
                    *(process, error, url),
                )
            return None
        self._unusable.discard(process)
        return answer
