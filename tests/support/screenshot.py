"""Draw the output of a command as a terminal shows it.

``make demo 2>&1 | python -m tests.support.screenshot FILE.svg`` writes the drawing. An ellipsis
replaces all status lines but the first.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_COLUMNS = 118
# Status lines that are shown.
_STATUS = 4
_WIDTH, _HEIGHT, _MARGIN = 7.8, 18, 16
_ELLIPSIS = "[...]"


def shown(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines to draw."""
    status = 0
    for line in lines:
        status += (is_status := " pages/s | " in line)
        if not is_status or status <= _STATUS:
            yield line
        elif status == _STATUS + 1:
            yield _ELLIPSIS


def draw(lines: Iterable[str]) -> str:
    """Return an SVG of lines. Long lines are broken as by a terminal."""
    rows: list[str] = []
    for line in lines:
        rows += wrap(line, _COLUMNS, drop_whitespace=False, break_on_hyphens=False) or [""]
    width, height = _COLUMNS * _WIDTH + 2 * _MARGIN, len(rows) * _HEIGHT + 2 * _MARGIN
    text = "\n".join(
        f'<text x="{_MARGIN}" y="{_MARGIN + _HEIGHT * (at + 0.75):.0f}"{_style(row)}>'
        f"{escape(row)}</text>"
        for at, row in enumerate(rows)
        if row.strip()
    )
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img"
 aria-label="A terminal in which make demo crawls a web on this machine">
<rect width="100%" height="100%" rx="8" fill="#1e1e1e"/>
<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="13" fill="#d4d4d4"
 xml:space="preserve">
{text}
</g>
</svg>
"""


def _style(row: str) -> str:
    if row.startswith("$"):
        return ' fill="#8fd18f"'
    return ' fill="#808080"' if row == _ELLIPSIS else ""


if __name__ == "__main__":
    output = [line.rstrip("\n") for line in sys.stdin]
    Path(sys.argv[1]).write_text(draw(["$ make demo", *shown(output)]))
