"""A snapshot of a crawl as plain lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krowlspider.frontier.admin.words import counted, data_size, duration, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from krowlspider.views.top.source import Snapshot

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
