"""Ask the crawl that uses a JOBDIR by the API of its live page."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import msgspec

from krowlspider.config.log import read_files
from krowlspider.errors import JobError, KrowlError, counted, data_size, duration, printable
from krowlspider.frontier.admin.export import Imported
from krowlspider.job.explain import Explanation
from krowlspider.job.folder import JobFolder, JobInUseError, processes_in
from krowlspider.job.forecasting import CrawlForecast
from krowlspider.job.monitoring.access import CONTROL_TOKEN, PAGE, noted_url
from krowlspider.programs.program import BAD_NAMED, BadLines, read_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scrapy.settings import Settings

_TIMEOUT = 5.0
# Seconds for which a crawl may take no bytes of a file, or sync it, or read for a forecast.
_TIMEOUT_OF_FILE = 60.0
# Bytes of an answer that are read.
_ANSWER_MAX = 4_000_000


class NoCrawlError(KrowlError):
    """No crawl answers."""


@dataclass(frozen=True, slots=True)
class CrawlAnswer:
    """What a crawl has answered: `Control.status`, rows of hosts and pages, and the samples of the
    charts by their name."""

    status: dict[str, Any]
    hosts: list[dict[str, Any]]
    pages: list[dict[str, Any]]
    history: dict[str, list[float]]


class CrawlSource:
    """The crawl whose live page is at ``url``. It is asked directly, through no proxy."""

    def __init__(self, url: str):
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise KrowlError(f"{url} is not the http URL of a live page, nor a JOBDIR")
        self.url = f"http://{parts.netloc}"
        self._opener = build_opener(ProxyHandler({}))

    @classmethod
    def of(cls, named: str) -> CrawlSource:
        """Return the source of a URL, or of the crawl that runs in a JOBDIR.

        :raises NoCrawlError: none runs there; the message has its last figures
        :raises KrowlError: there is no such JOBDIR
        """
        if "://" in named:
            return cls(named)
        path = Path(named)
        # The page of several processes is that of the crawl.
        if not processes_in(path):
            path = JobFolder.existing(named).path
        if url := noted_url(path, PAGE):
            source = cls(url)
            try:
                folder = source.ask("status")["folder"]
            except NoCrawlError:
                folder = None
            # Another crawl may have the port of one that was killed.
            if folder is not None and Path(folder).resolve() == path.resolve():
                return source
        raise NoCrawlError(_stopped(path))

    def ask(self, question: str) -> Any:
        """Return the answer to a question below ``/api/v1/``.

        :raises NoCrawlError: there is none
        """
        try:
            with self._opener.open(f"{self.url}/api/v1/{question}", timeout=_TIMEOUT) as answer:
                return json.loads(answer.read(_ANSWER_MAX))
        except (OSError, HTTPException, ValueError) as error:
            raise NoCrawlError(f"No crawl answers at {self.url}") from error

    def order(self, name: str, fields: dict[str, object], token: str) -> Any:
        """Give an order as JSON, and return the answer.

        :raises KrowlError: the crawl has refused it, with its reason
        :raises NoCrawlError: there is no answer
        """
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return self._answer(name, json.dumps(fields).encode(), headers)

    def send(self, file: Iterable[bytes], token: str) -> Any:
        """Send a file of URLs in pieces, and return the answer.

        :raises KrowlError: the crawl has refused it, with its reason
        :raises NoCrawlError: there is no answer
        """
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"}
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=_TIMEOUT_OF_FILE)
        try:
            with suppress(BrokenPipeError, ConnectionResetError):
                # A refusal comes before the end of the file.
                connection.request("POST", "/api/v1/import", file, headers, encode_chunked=True)
            answer = connection.getresponse()
            text = answer.read(_ANSWER_MAX).decode(errors="replace")
            if answer.status != HTTPStatus.OK:
                raise KrowlError(_reason(text))
            return json.loads(text)
        except (OSError, HTTPException, ValueError) as error:
            raise NoCrawlError(
                f"The crawl at {self.url} has ended, or has broken off: what it has taken by then"
                " stays queued; give the file again"
            ) from error
        finally:
            connection.close()

    def copy_frontier(self, token: str) -> Path:
        """Return the folder of a copy of the crawl's frontier, which is to be removed.

        :raises KrowlError: the crawl has refused it, with its reason
        :raises NoCrawlError: there is no answer
        """
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        found = self._answer("frontier-copy", b"{}", headers, timeout=_TIMEOUT_OF_FILE)
        return Path(found["folder"])

    def whole_snapshot(self, target: Path) -> str:
        """Return what the crawl says of the snapshot that was begun to a folder, "" while it is not
        whole.

        :raises KrowlError: it failed
        :raises NoCrawlError: there is no answer
        """
        found = self._answer(f"snapshot?folder={quote(str(target))}", None, {})
        return str(found["message"]) if found["done"] else ""

    def forecast(self, target: str) -> Any:
        """Return the forecast of a crawl for a target.

        :raises KrowlError: the crawl has none, with its reason
        :raises NoCrawlError: there is no answer
        """
        question = f"forecast?target={quote(target, safe='')}"
        return self._answer(question, None, {}, timeout=_TIMEOUT_OF_FILE)

    def _answer(
        self, path: str, body: bytes | None, headers: dict[str, str], timeout: float = _TIMEOUT
    ) -> Any:
        request = Request(f"{self.url}/api/v1/{path}", body, headers)  # noqa: S310 - it is of http
        try:
            with self._opener.open(request, timeout=timeout) as answer:
                return json.loads(answer.read(_ANSWER_MAX))
        except HTTPError as error:
            with error:
                text = error.read(_ANSWER_MAX).decode(errors="replace")
            raise KrowlError(_reason(text)) from error
        except (OSError, HTTPException, ValueError) as error:
            raise NoCrawlError(f"No crawl answers at {self.url}") from error

    def snapshot(self, sort: str, hosts: int) -> CrawlAnswer:
        """Return what the crawl answers now, with so many hosts, the greatest by ``sort``.

        :raises NoCrawlError: it does not answer
        """
        past = self.ask("history")
        samples = past["samples"]
        return CrawlAnswer(
            self.ask("status"),
            self.ask(f"hosts?sort={sort}&limit={hosts}"),
            self.ask("pages"),
            {name: [row[at] for row in samples] for at, name in enumerate(past["fields"])},
        )


def _reason(text: str) -> str:
    """Return the reason in the answer of a refused order."""
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return f"the crawl has answered {text[:200]!r}"


def _stopped(jobdir: Path) -> str:
    """Return that a JOBDIR is not being crawled, and its last figures."""
    text = f"{jobdir} is not being crawled, or its live page is off"
    try:
        last = json.loads((jobdir / "reports" / "report.json").read_bytes())
        figures = (
            f"{counted(last['done'], 'page')} done, {counted(last['dropped'], 'URL')} dropped,"
            f" {last['queued']:,} queued on {counted(last['hosts'], 'host')}"
        )
        return f"{text}. At its last end ({last['reason']}): {figures}"
    except (OSError, ValueError, KeyError, TypeError):
        return f"{text}; scrapy frontier {jobdir} shows what it has left"


HOST_COLUMNS = ("host", "queued", "done", "dropped", "delay", "due in", "errors")
_NAME_WIDTH = 40


def short(name: str) -> str:
    """Return the name of a host with at most 40 characters: the first and the last ones."""
    if len(name) <= _NAME_WIDTH:
        return name
    head = _NAME_WIDTH // 3
    return f"{name[:head]}…{name[head + 1 - _NAME_WIDTH :]}"


def rate_of(snapshot: CrawlAnswer) -> str:
    """Return the pages a second of the last sample; "-" before the first one."""
    rates = snapshot.history.get("pages_per_second")
    return f"{rates[-1]:,.1f}" if rates else "-"


def one_line(snapshot: CrawlAnswer) -> str:
    """Return the figures as one line."""
    found = snapshot.status
    done, limit = found["done"], found["of"]
    parts = [
        f"{done:,} of {counted(limit, 'page')}" if limit else counted(done, "page"),
        f"{rate_of(snapshot)} pages/s",
        f"{found['queued']:,} queued on {counted(found['hosts'], 'host')}, {found['due']:,} due",
        f"{found['in_flight']:,} in flight",
        f"{sum(found['dropped'].values()):,} dropped",
        f"WARC {data_size(found['archive_mb'] * 1e6)}",
        printable(found["paused"]),
    ]
    return " | ".join(part for part in parts if part)


def lines(snapshot: CrawlAnswer) -> Iterator[str]:
    """Yield the figures, the hosts and the last pages."""
    yield title(snapshot.status)
    yield one_line(snapshot)
    for name in ("statuses", "failed", "dropped"):
        if shown := counts(snapshot.status[name]):
            yield f"{name}: {shown}"
    yield ""
    yield f"{HOST_COLUMNS[0]:{_NAME_WIDTH}}" + "".join(f"{name:>12}" for name in HOST_COLUMNS[1:])
    for host in snapshot.hosts:
        name, *rest = host_cells(host)
        yield f"{name:{_NAME_WIDTH}}" + "".join(f"{cell:>12}" for cell in rest)
    yield ""
    for page in snapshot.pages:
        yield page_line(page)


def title(status: Mapping[str, Any]) -> str:
    seconds, folder = duration(status["seconds"]), printable(status["folder"])
    return f"{printable(status['spider'])}, running for {seconds}, in {folder}"


def counts(numbers: Mapping[str, int]) -> str:
    """Return counts by name, the greatest first."""
    shown = sorted(numbers.items(), key=lambda item: -item[1])
    return ", ".join(f"{printable(name)}: {count:,}" for name, count in shown if count)


def host_cells(host: Mapping[str, Any]) -> list[str]:
    """Return the cells of a host's row, in the order of HOST_COLUMNS."""
    due_in = host["due_in"]
    due = "put off" if due_in is None else duration(due_in) if due_in else "now"
    return [
        short(printable(host["host"])),
        *(f"{host[name]:,}" for name in ("queued", "done", "dropped")),
        duration(host["delay"]),
        "deferred" if host["deferred"] else due,
        f"{host['errors']:,}",
    ]


def page_line(page: Mapping[str, Any]) -> str:
    outcome = printable(page["outcome"])
    return f"{page['status'] or '-':>3} {outcome:12} {printable(page['url'])}"


# Lines that are sent at a time.
_LINES_AT_ONCE = 1000

# Seconds between two questions how it goes, and how many in a row may have no answer.
_INTERVAL = 0.2
_MISSES = 10


@contextmanager
def reached(error: JobInUseError) -> Iterator[CrawlSource]:
    """Reach the crawl that uses a folder.

    :raises JobError: it does not answer
    """
    try:
        yield CrawlSource.of(str(error.path))
    except NoCrawlError as cause:
        raise JobError(
            f"JOBDIR {error.path} is in use by process {error.holder}, which does not answer over"
            " HTTP: stop it first, or start it with PROMETHEUS_ENABLED=True"
        ) from cause


def token_of(error: JobInUseError, settings: Settings) -> str:
    """Return the token that the orders to a crawl need.

    :raises JobError: none is given, and the crawl has not left it in its folder
    :raises SettingsError: KROWL_CONTROL_TOKEN_FILE cannot be read
    """
    read_files(settings)
    if given := str(settings["KROWL_CONTROL_TOKEN"]):
        return given
    file = error.path / CONTROL_TOKEN
    try:
        return file.read_text().strip()
    except FileNotFoundError as cause:
        raise JobError(
            f"JOBDIR {error.path} is in use by process {error.holder}, which takes orders with a"
            f" token, and {file} is not there: set KROWL_CONTROL_TOKEN or KROWL_CONTROL_TOKEN_FILE"
            " as the crawl has it"
        ) from cause


def import_running(error: JobInUseError, name: str, settings: Settings) -> Imported:
    """Have the crawl that uses a folder queue the URLs of a file; return what became of them.

    The first bad lines are reported on standard error with their numbers.

    :raises JobError: it does not answer
    :raises KrowlError: it refuses the file, or the file cannot be read
    """
    bad = BadLines(BAD_NAMED)
    with reached(error) as source:
        token = token_of(error, settings)
        found = source.send(_pieces(read_lines(name)), token)
    for line in found["bad_lines"]:
        bad.add(line["line"], line["reason"])
    fields = (found[each] for each in ("new", "known", "refused", "bad", "sent"))
    return Imported(*fields)


def _pieces(lines: Iterator[bytes]) -> Iterator[bytes]:
    while some := list(islice(lines, _LINES_AT_ONCE)):
        yield b"".join(some)


def explain_running(error: JobInUseError, url: str) -> Explanation:
    """Return where a URL is, as the crawl that uses a folder says.

    :raises JobError: it does not answer
    """
    with reached(error) as source:
        found = source.ask(f"explain?url={quote(url, safe='')}")
    return msgspec.convert(found, Explanation)


def forecast_of_running(error: JobInUseError, target: str) -> CrawlForecast:
    """Return how fresh the pages stay, as the crawl that uses a folder says.

    :raises JobError: it does not answer
    :raises KrowlError: it has no pages
    """
    with reached(error) as source:
        return msgspec.convert(source.forecast(target), CrawlForecast)


def snapshot_of_running(error: JobInUseError, target: Path, settings: Settings) -> str:
    """Have the crawl that uses a folder take a snapshot of it; return what it says at the end.

    :raises JobError: it takes no orders, or ends before
    :raises KrowlError: it could not take it
    """
    target = target.absolute()
    with reached(error) as source:
        source.order("snapshot", {"folder": str(target)}, token_of(error, settings))
    misses = 0
    while misses < _MISSES:
        time.sleep(_INTERVAL)
        try:
            said = source.whole_snapshot(target)
        except NoCrawlError:
            misses += 1
            continue
        if said:
            return said
        misses = 0
    if target.is_dir():
        # It has got its name, and then the crawl has ended.
        return f"snapshot in {target}"
    raise JobError(f"the crawl in {error.path} has ended before the snapshot was whole")
