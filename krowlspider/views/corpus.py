"""The output of ``scrapy corpus``: what was built as text, and the report of a corpus as one page,
without scripts and without anything from elsewhere."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from krowlspider.frontier.admin.words import counted
from krowlspider.views.page import page_start

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_STYLE = """
svg.bar { height: 11px; border: 0; }
svg.plot { height: auto; border: 0; }
svg .accepted { fill: var(--line); }
svg .rejected { fill: var(--bad); opacity: .75; }
svg text { fill: var(--faint); font-size: 11px; text-anchor: middle; }
svg line { stroke: var(--rule); }
.key { color: var(--faint); font-size: 13px; margin: 0 0 8px; }
.key i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin: 0 4px 0 0; }
.key i.accepted { background: var(--line); }
.key i.rejected { background: var(--bad); opacity: .75; }
.key span { margin-right: 14px; }
.wide { width: 40%; border: 0; }
td:first-child { max-width: 320px; overflow: hidden; text-overflow: ellipsis; }
.scroll { max-height: none; }
@media (max-width: 560px) {
  .wide { width: 20%; }
  td:first-child { max-width: 36vw; }
  svg.bar { min-width: 40px; }
}
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(320px, 1fr)); gap: 18px; }
"""
_KEY = """<p class="key"><span><i class="accepted"></i>accepted</span>\
<span><i class="rejected"></i>rejected</span></p>"""
# A plot, in units of its drawing: the bars are between the numbers above and the axis below.
_WIDTH, _TOP, _AXIS, _BOTTOM = 520, 18, 150, 168
# Bits of the length up to which texts share the first bar: those below 128 characters.
_SHORTEST = 7


def built(counts: Counter[str], folder: Path) -> str:
    """Return how many pages were accepted, and the others by reason, most frequent first."""
    accepted, read = counted(counts["accepted"], "page"), counted(counts["responses"], "response")
    lines = [f"{accepted} of {read} in {folder}"]
    for kind in ("rejected", "skipped"):
        found = {name: n for name, n in counts.items() if name.startswith(f"{kind}/")}
        if found:
            lines.append(f"{kind}: {sum(found.values()):,}")
        for name, count in sorted(found.items(), key=lambda each: (-each[1], each[0])):
            lines.append(f"{count:>14,}  {name.partition('/')[2]}")
    return "\n".join(lines)


def corpus_page(name: str, found: dict[str, Any]) -> str:
    """Return the report of the corpus in the folder ``name`` as HTML."""
    title = f"Corpus {escape(name)}"
    return f"""{page_start(f"Corpus {name}", _STYLE)}<body>
<header><h1>{title}</h1><p>{counted(found["slices"], "WARC file")} or parts of them</p></header>
<main>
{_tiles(found)}
{_rules(found["rules"], found["pages"])}
{_lengths(found["lengths"])}
{_shares("Languages", "language", found["languages"], "")}
{_shares("Hosts with the most pages", "host", found["hosts"], _other_hosts(found))}
{_skipped(found["skipped"])}
</main>
</body>
</html>
"""


def _tiles(found: dict[str, Any]) -> str:
    pages, accepted, read = found["pages"], found["accepted"], found["responses"]
    more = "more than " if found["pages_of_hosts_not_counted"] else ""
    tiles = (
        ("responses read", f"{read:,}"),
        ("skipped, no page", f"{read - pages:,}"),
        ("pages", f"{pages:,}"),
        ("rejected", f"{pages - accepted:,}"),
        ("accepted", f"{accepted:,}"),
        ("share accepted", _percent(accepted, pages)),
        ("languages", f"{len(found['languages']):,}"),
        ("hosts", f"<small>{more}</small>{found['hosts_counted']:,}"),
    )
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles)
    return f'<section aria-label="Figures"><dl id="tiles">{shown}</dl></section>'


def _rules(rules: Sequence[dict[str, Any]], pages: int) -> str:
    most = max((rule["rejected"] for rule in rules), default=0)
    rows = (
        (
            escape(rule["rule"]),
            _bar(0, rule["rejected"], most),
            f"{rule['rejected']:,}",
            f"{rule['pages']:,}",
            _percent(rule["pages"] - rule["rejected"], rule["pages"]),
        )
        for rule in rules
        if rule["rejected"]
    )
    idle = ", ".join(escape(rule["rule"]) for rule in rules if not rule["rejected"])
    return _section(
        "Rejected by rule",
        f'<p class="key">{counted(pages, "page")} against the rules in this order: the first rule'
        " that a page fails rejects it.</p>"
        + _table("Rules", ("rule", "", "rejected", "pages tested", "passed"), rows)
        + (f'<p class="none">No page failed: {idle}</p>' if idle else ""),
    )


def _shares(title: str, what: str, rows: Sequence[dict[str, Any]], more: str) -> str:
    most = max((row["accepted"] + row["rejected"] for row in rows), default=0)
    cells = (
        (
            escape(row["name"]) or "unknown",
            _bar(row["accepted"], row["rejected"], most),
            f"{row['accepted']:,}",
            f"{row['accepted'] + row['rejected']:,}",
            _percent(row["accepted"], row["accepted"] + row["rejected"]),
        )
        for row in rows
    )
    heads = (what, "", "accepted", "pages", "share accepted")
    return _section(title, _KEY + _table(title, heads, cells) + more)


def _other_hosts(found: dict[str, Any]) -> str:
    shown, hosts = len(found["hosts"]), found["hosts_counted"]
    pages = found["pages_of_hosts_not_counted"]
    parts = [f"{shown:,} of {hosts:,} hosts"] if shown < hosts else []
    if pages:
        parts.append(f"not counted by host: {counted(pages, 'page')} of small hosts")
    return f'<p class="none">{"; ".join(parts)}</p>' if parts else ""


def _skipped(skipped: dict[str, int]) -> str:
    rows = ((escape(name), f"{number:,}") for name, number in skipped.items())
    return _section("Responses that are no page", _table("Skipped", ("reason", "responses"), rows))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>{content}</section>"


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    if not cells:
        return '<p class="none">none</p>'
    head = "".join(
        f'<th scope="col">{name}</th>' if name else '<td class="wide"></td>' for name in heads
    )
    body = "\n".join(f"<tr>{each}</tr>" for each in cells)
    return (
        f'<div class="scroll"><table><caption class="hidden">{title}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _bar(accepted: int, rejected: int, most: int) -> str:
    """Return a bar as long as the pages are to ``most``; its numbers stand beside it."""
    first, second = (100 * each / (most or 1) for each in (accepted, rejected))
    return (
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="accepted" width="{first:.2f}" height="10"/>'
        f'<rect class="rejected" x="{first:.2f}" width="{second:.2f}" height="10"/></svg>'
    )


# --- lengths ---


def _lengths(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return _section("Length of the texts", '<p class="none">none</p>')
    plots = "".join(_plot(rows, kind) for kind in ("accepted", "rejected"))
    return _section("Length of the texts, in characters", f'<div class="plots">{plots}</div>')


def _plot(rows: Sequence[dict[str, Any]], kind: str) -> str:
    """Return a histogram; all lengths from the shortest to the longest have a place in it."""
    pages: dict[int, int] = {}
    for row in rows:
        bits = max(row["from"].bit_length(), _SHORTEST)
        pages[bits] = pages.get(bits, 0) + row[kind]
    most, step = max(*pages.values(), 1), _WIDTH / (max(pages) - min(pages) + 1)
    parts = []
    for at, bits in enumerate(range(min(pages), max(pages) + 1)):
        number, left = pages.get(bits, 0), step * at
        top = _AXIS - (_AXIS - _TOP) * number / most
        parts.append(
            f'<rect class="{kind}" x="{left + 1:.1f}" y="{top:.1f}"'
            f' width="{step - 2:.1f}" height="{_AXIS - top:.1f}"/>'
        )
        if number:
            middle = left + step / 2
            parts.append(f'<text x="{middle:.1f}" y="{top - 4:.1f}">{_short(number)}</text>')
        start = 0 if bits == _SHORTEST else 1 << bits >> 1
        parts.append(f'<text x="{left:.1f}" y="{_BOTTOM - 4}">{_size(start)}</text>')
    parts.append(f'<text x="{_WIDTH}" y="{_BOTTOM - 4}">{_size(1 << max(pages))}</text>')
    total = counted(sum(pages.values()), "page")
    return (
        f"<figure><figcaption><span>{kind}</span><b>{total}</b></figcaption>"
        f'<svg class="plot" viewBox="-14 0 {_WIDTH + 28} {_BOTTOM}" role="img"'
        f' aria-label="Lengths of {kind} texts, {total}">{"".join(parts)}'
        f'<line x1="0" y1="{_AXIS}" x2="{_WIDTH}" y2="{_AXIS}"/></svg></figure>'
    )


def _short(number: int) -> str:
    if number < 10_000:
        return str(number)
    return f"{number / 1e3:.0f}k" if number < 1e6 else f"{number / 1e6:.1f}M"


def _size(chars: int) -> str:
    """Return a power of two as it is usually written."""
    if chars < 1 << 10:
        return str(chars)
    return f"{chars >> 10}k" if chars < 1 << 20 else f"{chars >> 20}M"
