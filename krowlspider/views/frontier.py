"""The output of ``scrapy frontier``, as text; and the names of hosts as people give them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from krowlspider.errors import KrowlError, also_fetched, counted, duration, scrapy_with
from krowlspider.job.status import status_line
from krowlspider.urls.seeds import ordered_host

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.engine.control import FinishedPage
    from krowlspider.frontier.admin.export import Imported
    from krowlspider.frontier.admin.repair import Repaired
    from krowlspider.frontier.admin.view import EntryRow, FrontierView, HostRow, HostView
    from krowlspider.job.explain import Explanation
    from krowlspider.job.snapshots import Made

DELAYS_OF_COMMAND = (
    "\n\nThe delays are by the settings of this command: no start has recorded its own in job.json"
)


# The one field of the status of a frontier that is served: its address.
SERVED = "served_at"


def running(jobdir: Path, status: dict[str, object] | None) -> str:
    """Return the last status line of a running crawl and its age, or where it is served."""
    if status is None:
        return f"{jobdir} is being crawled; it has no figures yet"
    if SERVED in status:
        return f"{jobdir} is being served to other crawlers, as a URLFrontier at {status[SERVED]}"
    age = time.time() - float(str(status["time"]))
    line = status_line(status)
    return f"{jobdir} is being crawled; its last status line, {age:.0f} s ago:\n{line}"


def whole(view: FrontierView) -> str:
    """Return the totals of all hosts, and the tables of some hosts and of pages set aside."""
    dropped = ", ".join(f"{reason}: {count:,}" for reason, count in view.dropped.items())
    others = also_fetched(view.fetched)
    lines = [
        f"hosts    {view.hosts:,}" + (f" ({view.deferred:,} deferred)" if view.deferred else ""),
        f"queued   {view.queued:,}",
        f"done     {counted(view.done, 'page')}" + (f" ({others})" if others else ""),
        f"dropped  {sum(view.dropped.values()):,}" + (f" ({dropped})" if dropped else ""),
        *([f"set aside {view.poison:,}"] if view.poison else []),
        *host_table("most queued", view.biggest),
        *host_table("slowest", view.slowest),
        *host_table("due next", view.next_due),
        *_entries("set aside", view.poisoned),
    ]
    return "\n".join(lines)


def host_table(title: str, rows: list[HostRow]) -> list[str]:
    """Return the lines of a table of hosts, after an empty one; none without a host."""
    if not rows:
        return []
    names = ("queued", "done", "dropped", "delay s", "due in", "errors")
    head = "{:>9} {:>9} {:>8} {:>8} {:>12} {:>6}  host".format(*names)
    return ["", title, head] + [
        f"{row.queued:>9,} {row.done:>9,} {row.dropped:>8,} {row.delay:>8.2f}"
        f" {_due(row.due_in):>12} {row.errors:>6}"
        f"  {row.host}{' (deferred)' if row.deferred else ''}"
        for row in rows
    ]


def _due(seconds: float | None) -> str:
    return "put off" if seconds is None else duration(seconds)


def _entries(title: str, rows: list[EntryRow]) -> list[str]:
    if not rows:
        return []
    names = ("priority", "depth", "tries", "strikes", "due in")
    head = "{:>8} {:>6} {:>6} {:>7} {:>12}  url".format(*names)
    return ["", title, head] + [
        f"{row.priority:>8} {row.depth:>6} {row.tries:>6} {row.strikes:>7}"
        f" {duration(row.due_in):>12}  {row.url}"
        for row in rows
    ]


def one_host(view: HostView) -> str:
    """Return the state of one host, and why it is not being fetched."""
    host = view.host
    asked = f" (its robots.txt asks for {view.crawl_delay:.2f} s)" if view.crawl_delay else ""
    retries = f" ({view.retries:,} wait for another try)" if view.retries else ""
    errors = counted(host.errors, "error")
    lines = [
        f"{host.host}: {view.why}",
        f"state    {view.state}",
        f"delay    {host.delay:.2f} s{asked}",
        f"backoff  {errors} in a row, slowed down {counted(view.throttling, 'time')}",
        f"due in   {_due(host.due_in)}",
        f"queued   {host.queued:,}{retries}",
        f"done     {host.done:,}",
        f"dropped  {host.dropped:,}",
        f"set aside {view.poisoned:,}",
    ]
    if view.priced:
        asked = f"{counted(view.priced, 'answer')} 402, which count as errors"
        lines.append(f"price    {view.price or 'not named'} ({asked})")
    for known in view.robots:
        lines.append(
            f"robots   {known.authority}: {known.ruling}, status {known.status},"
            f" fetched {_moment(known.fetched)}, expires {_moment(known.expires)}"
        )
        lines += [f"terms    {term}" for term in known.terms]
    lines += [f"terms    {term}" for term in view.terms]
    lines += [f"policy   {line}" for line in view.sheets]
    return "\n".join([*lines, *_entries("queue", view.queue), *_entries("set aside", view.poison)])


def page_table(rows: list[FinishedPage]) -> list[str]:
    """Return the lines of a table of pages that are over."""
    head = "{:>6} {:>12} {:>9}  {:16}  URL".format("status", "bytes", "latency s", "outcome")
    return [head] + [
        f"{row.status or '-':>6} {row.size:12,} {row.latency:9.2f}  {row.outcome:16}  {row.url}"
        for row in rows
    ]


def explained(found: Explanation) -> str:
    """Return where a URL is, and what decides about it."""
    rows = {
        "state": found.state,
        "decided by": found.setting,
        "host": found.host,
        "node": found.owner,
        "robots.txt": found.robots,
        "tries": found.tries and counted(found.tries, "failed try"),
        "captures": found.captures and f"{found.captures:,} in the archive",
        "page": found.page,
    }
    lines = [f"  {name:11} {text}" for name, text in rows.items() if text]
    lines += [f"  {'policy':11} {text}" for text in found.sheets]
    return "\n".join([found.url, found.why, *lines])


def imported(result: Imported) -> str:
    """Return the counts of an import."""
    reasons = ", ".join(f"{reason}: {count}" for reason, count in result.refused.items())
    refused = f"refused {sum(result.refused.values())}" + (f" ({reasons})" if reasons else "")
    sent = f", sent to other nodes {result.sent}" if result.sent else ""
    pages = f", rows of pages {result.pages}" if result.pages else ""
    known = f"known {result.known}, {refused}, bad {result.bad}"
    return f"imported {result.imported}{sent}{pages}, {known}"


def exported(count: int, left_out: int) -> str:
    """Return the counts of an export."""
    if not left_out:
        return f"{counted(count, 'URL')} written"
    return (
        f"{counted(count, 'URL')} written; left out {counted(left_out, 'request')} with more than a"
        " URL (such as POST, or with a callback)"
    )


def unread_rows(count: int) -> str:
    """Return the warning of rows that cannot be read."""
    return (
        f"left out {counted(count, 'row')} of pages that cannot be read, as another version has"
        " written them, or they are damaged"
    )


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds))


def repaired(report: Repaired, jobdir: Path) -> str:
    """Return what a repair found and lost, and what to do about it."""
    found, copy = report.found, report.copy
    plain = {"poison": "set aside"}
    kept = ", ".join(f"{plain.get(name, name)} {count:,}" for name, count in found.kept.items())
    if copy is None:
        return f"nothing is wrong with it: {kept}"
    tables = (
        f"tables that could not be read whole: {len(report.tables)}, {report.table_bytes:,} bytes"
        f" ({', '.join(report.tables)})"
    )
    damage = {
        tables: report.table_bytes,
        f"tables that are missing: {report.missing:,}": report.missing,
        f"bytes of logs that could not be read: {report.log_bytes:,}": report.log_bytes,
        f"bytes missing at the ends of cut logs: {report.cut_bytes:,}": report.cut_bytes,
    }
    lines = [
        f"{'NOT repaired, no host is left' if report.empty else 'repaired'}: {kept}",
        f"seen marks made anew for queued URLs: {found.marked:,}",
        *(line for line, count in damage.items() if count),
        *_lost(report),
    ]
    if found.counters_lost:
        lines.append("the counters are lost: done and dropped URLs are counted too low")
    if found.short_hosts or found.unrecorded_hosts:
        lines.append(
            "what was seen of a host comes back only when the host is forgotten:"
            f" {scrapy_with('frontier', jobdir, '--forget', 'HOST')}"
        )
    if report.empty:
        lines.append(
            "put the files back from a copy of your own, or give a new JOBDIR;"
            f" as they were they are in {copy}"
        )
    else:
        lines.append(f"the files as they were are in {copy}: remove it when the crawl goes well")
    return "\n".join(lines)


def snapshot_taken(taken: Made) -> str:
    """Return where a snapshot is, and whether its files are copies."""
    return f"snapshot in {taken.folder}: {_files(taken)}"


def restored(made: Made, archive: str | None) -> str:
    """Return what was made of a snapshot; ``archive`` is what KROWL_WARC_DIR names."""
    text = f"restored {made.folder}: {_files(made)}"
    if archive:
        text += f"; move the files of {made.folder}/warc to the KROWL_WARC_DIR of its next start"
    return text


def _files(made: Made) -> str:
    linked = f"{counted(made.linked, 'file')} linked"
    if not made.copied:
        return linked
    text = f"{counted(made.copied, 'file')} copied: hard links to the new folder are not possible"
    return f"{linked}, {text}" if made.linked else text


def _lost(report: Repaired) -> list[str]:
    """Return the lines about lost entries, and about hosts without a record."""
    found = report.found
    lines = []
    if found.short_hosts or report.lossy:
        count = f"{counted(found.short_urls, 'URL')} of {counted(found.short_hosts, 'host')}"
        lines.append(
            f"lost from the queues: at least {count}, and an unknown number"
            " of hosts without a record"
            if report.lossy
            else f"lost from the queues: at most {count}, with the pages done in the last second"
        )
        lines += [f"{number:>9,}  {host}" for number, host in found.short]
    if found.unrecorded_hosts:
        lines.append(f"hosts that were seen and have lost their record: {found.unrecorded_hosts:,}")
        lines += [f"{'':>9}  {host}" for host in found.unrecorded]
    if found.bad_row_count:
        lines.append(f"damaged rows of pages, which are removed: {found.bad_row_count:,}")
        lines += [f"{'':>9}  {host}, identity {key} ({why})" for host, key, why in found.bad_rows]
    return lines


def named_host(name: str) -> str:
    """Return the host of a name or a URL, as written in the frontier; without a port, the one of
    both default ports.

    :raises KrowlError: ``name`` is not the name of a host
    """
    host = order_name(name)
    bare, _, port = host.rpartition(":")
    return bare if port in {"80", "443"} and bare else host


def order_name(name: str) -> str:
    """Return what ``name`` covers in an order: a name at all its ports, or at the one given.

    :raises KrowlError: ``name`` is not the name of a host
    """
    try:
        return ordered_host(name)
    except ValueError as error:
        raise KrowlError(str(error)) from error


def whole_host(name: str, way_for_page: str) -> str:
    """Return what ``name`` covers, for a change to all URLs of its hosts.

    ``way_for_page`` says what to do with one URL.

    :raises KrowlError: ``name`` is not the name of a host, or has a scheme or a path
    """
    host = order_name(name)
    if not set(name).isdisjoint("/\\?#"):
        raise KrowlError(f"{name!r} is not a host: give {host!r} for all its URLs; {way_for_page}")
    return host
