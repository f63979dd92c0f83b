"""Ask a running crawl by the API of its live page, and show its answers as plain lines."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from krowlspider.crawl.folder import JobFolder, processes_in
from krowlspider.crawl.monitoring.access import PAGE, noted_url
from krowlspider.errors import KrowlError
from krowlspider.frontier.admin.words import counted, data_size, duration, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_TIMEOUT = 5.0
# Seconds for which a crawl may take no bytes of a file, or sync it, or read for a forecast.
_TIMEOUT_OF_FILE = 60.0
# Bytes of an answer that are read.
_ANSWER_MAX = 4_000_000


class NoCrawlError(KrowlError):
    """No crawl answers."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a crawl has answered: `Control.status`, rows of hosts and pages, and the samples of the
    charts by their name."""

    status: dict[str, Any]
    hosts: list[dict[str, Any]]
    pages: list[dict[str, Any]]
    history: dict[str, list[float]]


class Source:
    """The crawl whose live page is at ``url``. It is asked directly, through no proxy."""

    def __init__(self, url: str):
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise KrowlError(f"{url} is not the http URL of a live page, nor a JOBDIR")
        self.url = f"http://{parts.netloc}"
        self._opener = build_opener(ProxyHandler({}))

    @classmethod
    def of(cls, named: str) -> Source:
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

    def snapshot(self, sort: str, hosts: int) -> Snapshot:
        """Return what the crawl answers now, with so many hosts, the greatest by ``sort``.

        :raises NoCrawlError: it does not answer
        """
        past = self.ask("history")
        samples = past["samples"]
        return Snapshot(
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


def rate_of(snapshot: Snapshot) -> str:
    """Return the pages a second of the last sample; "-" before the first one."""
    rates = snapshot.history.get("pages_per_second")
    return f"{rates[-1]:,.1f}" if rates else "-"


def one_line(snapshot: Snapshot) -> str:
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


def lines(snapshot: Snapshot) -> Iterator[str]:
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
