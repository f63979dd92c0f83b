"""The output of ``scrapy frontier``, as text."""

from __future__ import annotations

import time
from shlex import quote
from typing import TYPE_CHECKING

from krowlspider.crawl.status import LINE

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.crawl.folder import JobFolder
    from krowlspider.frontier.admin.host_view import EntryLine, HostView
    from krowlspider.frontier.admin.rebuild import Found
    from krowlspider.frontier.admin.repair import Repaired
    from krowlspider.frontier.admin.view import FrontierView, HostLine


def running(folder: JobFolder, status: dict[str, object] | None) -> str:
    """Return the last status line of a running crawl and its age."""
    if status is None:
        return f"{folder.path} is being crawled; it has no figures yet"
    age = time.time() - float(str(status["time"]))
    return (
        f"{folder.path} is being crawled; its last status line, {age:.0f} s ago:\n{LINE % status}"
    )


def whole(view: FrontierView) -> str:
    """Return the totals of all hosts, and the tables of some hosts and of poison entries."""
    dropped = ", ".join(f"{reason}: {count:,}" for reason, count in view.dropped.items())
    lines = [
        f"hosts    {view.hosts:,}" + (f" ({view.deferred:,} deferred)" if view.deferred else ""),
        f"queued   {view.queued:,}",
        f"done     {view.done:,}",
        f"dropped  {sum(view.dropped.values()):,}" + (f" ({dropped})" if dropped else ""),
        *([f"poison   {view.poison:,}"] if view.poison else []),
        *_hosts("most queued", view.biggest),
        *_hosts("slowest", view.slowest),
        *_hosts("due next", view.next_due),
        *_entries("poison", view.poisoned),
    ]
    return "\n".join(lines)


def _hosts(title: str, lines: list[HostLine]) -> list[str]:
    if not lines:
        return []
    head = f"{'queued':>9} {'done':>9} {'dropped':>8} {'delay s':>8} {'due in s':>9} {'errors':>6}  host"
    return ["", title, head] + [
        f"{line.queued:>9,} {line.done:>9,} {line.dropped:>8,} {line.delay:>8.2f} {line.due_in:>9.1f}"
        f" {line.errors:>6}  {line.host}{' (deferred)' if line.deferred else ''}"
        for line in lines
    ]


def _entries(title: str, lines: list[EntryLine]) -> list[str]:
    if not lines:
        return []
    head = f"{'priority':>8} {'depth':>6} {'tries':>6} {'strikes':>7} {'due in s':>9}  url"
    return ["", title, head] + [
        f"{line.priority:>8} {line.depth:>6} {line.tries:>6} {line.strikes:>7} {line.due_in:>9.1f}  {line.url}"
        for line in lines
    ]


def one_host(view: HostView) -> str:
    """Return the state of one host, and why it is not being fetched."""
    asked = f" (its robots.txt asks for {view.crawl_delay:.2f} s)" if view.crawl_delay else ""
    retries = f" ({view.retries:,} wait for another try)" if view.retries else ""
    lines = [
        f"{view.host}: {view.why}",
        f"state    {view.state}",
        f"delay    {view.delay:.2f} s{asked}",
        f"backoff  {view.errors} errors in a row, slowed down {view.throttling} times",
        f"due in   {view.due_in:.1f} s",
        f"queued   {view.queued:,}{retries}",
        f"done     {view.done:,}",
        f"dropped  {view.dropped:,}",
        f"poison   {view.poisoned:,}",
    ]
    lines += [
        f"robots   {known.authority}: {known.ruling}, status {known.status}, fetched {_moment(known.fetched)},"
        f" expires {_moment(known.expires)}"
        for known in view.robots
    ]
    return "\n".join([*lines, *_entries("queue", view.queue), *_entries("poison", view.poison)])


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds))


def repaired(report: Repaired, jobdir: Path) -> str:
    """Return what a repair found and lost, and what to do about it."""
    found = report.found
    kept = ", ".join(f"{name} {count:,}" for name, count in found.kept.items())
    if report.copy is None:
        return f"nothing is wrong with it: {kept}"
    lines = [
        f"{'NOT repaired, no host is left' if report.empty else 'repaired'}: {kept}",
        f"seen marks made anew for queued URLs: {found.marked:,}",
    ]
    if report.tables:
        lines.append(
            f"tables that could not be read whole: {len(report.tables)}, {report.table_bytes:,} bytes"
            f" ({', '.join(report.tables)})"
        )
    if report.missing:
        lines.append(f"tables that are not there any more: {report.missing:,}")
    if report.log_bytes:
        lines.append(f"bytes of logs that could not be read: {report.log_bytes:,}")
    if report.cut_bytes:
        lines.append(f"bytes missing at the ends of logs, which were cut: {report.cut_bytes:,}")
    lines += [*_lost(report), *_unrecorded(found)]
    if found.counters_lost:
        lines.append("the counters are lost: done and dropped URLs are counted too low")
    if found.short_hosts or found.unrecorded_hosts:
        forget = f"scrapy frontier {quote(str(jobdir))} --forget HOST"
        lines.append(
            f"what was seen of a host comes back only when the host is forgotten: {forget}"
        )
    if report.empty:
        lines.append(
            f"put the files back from a copy of your own, or give a new JOBDIR; as they were they are in {report.copy}"
        )
    else:
        lines.append(
            f"the files as they were are in {report.copy}: remove it when the crawl goes well"
        )
    return "\n".join(lines)


def _lost(report: Repaired) -> list[str]:
    found = report.found
    if not (found.short_hosts or report.lossy):
        return []
    count = f"{found.short_urls:,} URLs of {found.short_hosts:,} hosts"
    if report.lossy:
        lost = f"lost from the queues: at least {count}, and of hosts without a record nobody knows how many"
    else:
        lost = f"lost from the queues: at most {count}, as what was done in the last second is counted too"
    return [lost, *(f"{number:>9,}  {host}" for number, host in found.short)]


def _unrecorded(found: Found) -> list[str]:
    if not found.unrecorded_hosts:
        return []
    head = f"hosts that were seen and have lost their record: {found.unrecorded_hosts:,}"
    return [head, *(f"{'':>9}  {host}" for host in found.unrecorded)]
