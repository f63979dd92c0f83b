"""The files of a crawl's report: TSV and JSON for programs, and a page for people."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from html import escape
from itertools import accumulate, islice, pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from krowlspider.errors import counted, data_size, duration, printable
from krowlspider.job.report import FIELDS, Course, ReportRecorder, Row, Table, Tables, in_slices
from krowlspider.views.page import page_start

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


logger = logging.getLogger(__name__)

# Rows of a table on the page, and in the JSON; its TSV has all.
_SHOWN = 200
_IN_JSON = 50_000
# Class of cells with text, and characters of a text that is shown as it is.
_TEXT = ' class="text"'
_SHORT = 60
# First characters of what a spreadsheet computes or runs.
_FORMULA = ("=", "+", "-", "@")
# What no line of a TSV has that can be written as it is.
_RISKY = re.compile(r"(?:^|\t)[=+@-]|[^\t\x20-\x7e]")
_encode = msgspec.json.Encoder().encode
# Four charts in a row, where the live page has three.
_MORE_STYLE = """@media (min-width: 561px) {
  #charts { grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); }
}
"""


def report_on(record: ReportRecorder, reason: str) -> None:
    """Write the report of a crawl that has ended for a reason; without its tables there is none.

    This may take seconds: call it in a thread.
    """
    if record.tables is None:
        return
    try:
        record.course.write()
        write_report(record.folder, record.about(reason), record.tables, record.course)
    except OSError as error:
        logger.warning("The report cannot be written to %s: %s", record.folder, error.strerror)
    finally:
        record.tables.close()


def write_report(folder: Path, about: dict[str, Any], found: Tables, course: Course) -> None:
    """Write all files of a report. Each replaces its predecessor as a whole.

    ``about`` has ``spider``, ``folder``, ``reason``, ``ended`` in epoch seconds, and ``ran`` in
    seconds.

    :raises OSError: they cannot be written
    """
    folder.mkdir(exist_ok=True)
    for table in found.tables:
        write_table(folder, table)
    _write(folder / "report.html", _page(about, found, course))
    _write(folder / "report.json", _json(about, found))


def write_table(folder: Path, table: Table) -> Path:
    """Write one table as TSV; return its file.

    :raises OSError: it cannot be written
    """
    path = folder / f"{table.name}.tsv"
    _write(path, _tsv(table))
    return path


def _write(path: Path, parts: Iterator[str]) -> None:
    draft = path.with_name(f"{path.name}.new")
    with draft.open("w", encoding="utf-8", errors="replace") as file:
        for some in in_slices(parts):
            file.writelines(some)
    draft.replace(path)


def _tsv(table: Table) -> Iterator[str]:
    yield "\t".join(table.columns) + "\n"
    for row in table.rows:
        line = "\t".join(map(str, row))
        # Nearly all lines are printable ASCII: a look at each cell is for the others.
        if _RISKY.search(line) or line.count("\t") != len(row) - 1:
            line = "\t".join(map(_tsv_cell, row))
        yield line + "\n"
    if table.cut:
        yield f"# {table.cut}\n"


def _tsv_cell(value: str | float) -> str:
    """Return a cell that is no formula where a spreadsheet opens the file."""
    cell = printable(str(value))
    return f"'{cell}" if isinstance(value, str) and cell.startswith(_FORMULA) else cell


def _json(about: dict[str, Any], found: Tables) -> Iterator[str]:
    # The name of a folder may be no UTF-8: `json` escapes it.
    head = json.dumps({**about, **found.totals, "all_hosts_read": found.is_whole})
    yield f'{head[:-1]}, "tables": {{'
    for number, table in enumerate(found.tables):
        yield f'{", " if number else ""}{json.dumps(table.name)}: {{"rows": ['
        for at, row in enumerate(islice(table.rows, _IN_JSON)):
            columns = zip(table.columns, row, strict=True)
            yield ("," if at else "") + _encode(dict(columns)).decode()
        yield f'], "total": {max(table.total, len(table.rows))}}}'
    yield "}}"


# --- the page ---


def _page(about: dict[str, Any], found: Tables, course: Course) -> Iterator[str]:
    totals = found.totals
    crawl, ended = escape(str(about["spider"])), about["ended"]
    yield f"""{page_start(f"Report of {about['spider']}", _MORE_STYLE)}<body>
<header>
  <h1>Report of {crawl}</h1>
  <p>{_date(totals["began"])} to {_date(ended)}, {counted(totals["starts"], "start")},
  in {escape(str(about["folder"]))}; ended: {escape(str(about["reason"]))}</p>
</header>
<main>
"""
    yield '<section aria-label="Figures"><dl id="tiles">'
    for name, value in (
        ("pages done", f"{totals['done']:,}"),
        ("dropped", f"{totals['dropped']:,}"),
        ("still queued", f"{totals['queued']:,}"),
        ("hosts", f"{totals['hosts']:,}"),
        ("received", _with_unit(data_size(totals["received"]))),
        ("time crawled", _with_unit(duration(about["ran"]))),
    ):
        yield f"<div><dt>{name}</dt><dd>{value}</dd></div>"
    yield "</dl></section>\n"
    if len(course.samples) > 1:
        between = ", without the time between starts" if totals["starts"] > 1 else ""
        yield f'<section><h2>Over the time crawled{between}</h2><div id="charts">'
        yield from _charts(course)
        yield "</div></section>\n"
    if not found.is_whole:
        yield "<p>There was no time to read all hosts: the tables of hosts are not complete.</p>"
    small = [table for table in found.tables if len(table.columns) <= 2]
    yield '<div class="pair">'
    for table in small:
        yield from _shown(table)
    yield "</div>"
    for table in found.tables:
        if table not in small:
            yield from _shown(table)
    yield "</main>\n</body>\n</html>\n"


def _with_unit(text: str) -> str:
    """Return a figure with its unit in small letters; a duration of two parts as it is."""
    number, _, unit = text.partition(" ")
    return text if " " in unit else f"{number} <small>{unit}</small>"


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _shown(table: Table) -> Iterator[str]:
    yield f"<section><h2>{table.title}</h2>"
    if not table.rows:
        yield '<p class="none">none</p></section>\n'
        return
    yield f'<div class="scroll"><table><caption class="hidden">{table.title}</caption><thead><tr>'
    rows = list(islice(table.rows, _SHOWN))
    for name, *values in zip(table.columns, *rows, strict=True):
        is_text = all(isinstance(value, str) for value in values)
        yield f'<th scope="col"{_TEXT if is_text else ""}>{escape(name)}</th>'
    yield "</tr></thead><tbody>\n"
    for row in rows:
        yield _row(row)
    yield "</tbody></table></div>"
    shown, total = min(_SHOWN, len(table.rows)), max(table.total, len(table.rows))
    if shown < total:
        yield f'<p class="none">{shown:,} of {total:,}; {table.name}.tsv has more</p>'
    yield "</section>\n"


def _row(row: Row) -> str:
    return f"<tr>{''.join(map(_cell, row))}</tr>\n"


def _cell(value: str | float) -> str:
    if not isinstance(value, str):
        return f"<td>{f'{value:,}' if isinstance(value, int) else value}</td>"
    text = value and escape(printable(value))
    if len(value) > _SHORT:
        # Whoever hovers reads all of it.
        text = f'<span class="clip" title="{text}">{text}</span>'
    return f"<td{_TEXT}>{text}</td>"


def _charts(course: Course) -> Iterator[str]:
    columns = dict(zip(FIELDS, zip(*course.samples, strict=True), strict=True))
    steps = course.steps()
    times = [0.0, *accumulate(steps)]
    rates = _rates(steps, columns["done"], course.interval)
    ends = [*accumulate(seconds for seconds, _ in rates)]
    # A rate is that of a whole step.
    rate_times = [time for step in zip([0.0, *ends], ends, strict=False) for time in step]
    rate_values = [rate for _, rate in rates for _ in range(2)]
    yield _chart("pages done", times, columns["done"])
    if rates:
        most = max(rate_values)
        yield _chart("pages/s", rate_times, rate_values, what="at most", value=most)
    yield _chart("URLs queued", times, columns["queued"])
    yield _chart("URLs dropped", times, columns["dropped"])


def _rates(
    steps: Sequence[float], done: Sequence[float], interval: float
) -> list[tuple[float, float]]:
    """Return seconds and pages a second of each step, without the time between starts.

    The last sample of a start may come right after the one before: it has no rate of its own.
    """
    found: list[tuple[float, float]] = []
    for step, (before, after) in zip(steps, pairwise(done), strict=True):
        is_short = bool(found) and step < interval / 2
        last, rate = found.pop() if is_short else (0.0, 0.0)
        if (seconds := step + last) > 0:
            found.append((seconds, (after - before + last * rate) / seconds))
    return found


def _chart(
    title: str,
    times: Sequence[float],
    values: Sequence[float],
    what: str = "at the end",
    value: float | None = None,
) -> str:
    """Return a chart as the live page has. ``times`` begin with 0."""
    most = max(*values, 1e-9)
    span = max(1.0, times[-1])
    points = [
        f"{360 * time / span:.1f},{80 - 74 * value / most:.1f}"
        for time, value in zip(times, values, strict=True)
    ]
    shown = f"{values[-1] if value is None else value:,.1f}".removesuffix(".0")
    line = "L".join(points)
    return (
        f"<figure><figcaption><span>{title}</span><b>{shown} {what}</b></figcaption>"
        f'<svg viewBox="0 0 360 84" preserveAspectRatio="none" role="img"'
        f' aria-label="{title}: {shown} {what}">'
        f'<path class="area" d="M0,84L{line}L360,84Z"/><path class="line" d="M{line}"/>'
        f'</svg><p class="axis"><span>0</span><span>{duration(span)}</span></p></figure>'
    )
