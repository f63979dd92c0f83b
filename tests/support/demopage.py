"""The page that shows what ``make demo`` archived: hosts, pages, statuses, files, and replay.

All of it is read from the indexes of the archive. The page loads nothing and needs no script.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from krowlspider.archive.index.cdxj import REVISIT, WARC
from krowlspider.archive.index.indexes import indexes_in, parsed
from krowlspider.frontier.admin.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from krowlspider.archive.index.cdxj import IndexLine

# Where ``scrapy warc replay`` serves pages.
REPLAY = "http://localhost:8080/crawl/"
_STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --soft: #5b6876; --line: #dde3ea;
  --paper: #fff; --shade: #f4f6f9; --bar: #4a82c4; --link: #1a5aa8 }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ef; --soft: #9aa7b5; --line: #303a45;
  --paper: #161b21; --shade: #1e252d; --bar: #3f73ad; --link: #85b6ee } }
body { margin: 0 auto; max-width: 60rem; padding: 2rem 1.25rem 4rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif }
h1 { margin: 0; font-size: 1.6rem } h2 { margin: 2.5rem 0 .75rem; font-size: 1.15rem }
p { margin: .5rem 0 } .soft, small { color: var(--soft) } a { color: var(--link) }
code, pre { font: .875rem/1.6 ui-monospace, monospace }
pre { margin: .75rem 0; padding: .75rem 1rem; overflow-x: auto; background: var(--shade);
  border: 1px solid var(--line); border-radius: 6px }
.sums { display: grid; grid-template-columns: repeat(auto-fit, minmax(8rem, 1fr)); gap: .75rem;
  margin: 1.5rem 0 0 }
.sums div { padding: .6rem .9rem; background: var(--shade); border-radius: 6px }
.sums b { display: block; font-size: 1.4rem }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 0 3rem }
table { width: 100%; border-collapse: collapse }
th { text-align: left; font-weight: 500; color: var(--soft); font-size: .875rem }
th, td { padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: anywhere }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
.share { width: 40% } .share i { display: block; height: .6rem; margin-top: .45rem;
  min-width: 2px; background: var(--bar); border-radius: 2px }
details { border-bottom: 1px solid var(--line) }
summary { display: flex; gap: .75rem; padding: .3rem 0; cursor: pointer }
summary::before { content: "+"; width: 1ch; color: var(--soft) }
details[open] summary::before { content: "\\2212" }
summary b { flex: 1; font-weight: 500 }
details table { margin: 0 0 1rem 1.5rem; width: calc(100% - 1.5rem) }
"""


def replay_commands(jobdir: Path) -> list[str]:
    """Return the commands of docs/archive.md that replay a job with pywb."""
    return [
        f"python3 -m venv {jobdir}/replay",
        f"{jobdir}/replay/bin/pip install pywb",
        f".venv/bin/scrapy warc replay {jobdir}",
    ]


def write_page(jobdir: Path) -> Path:
    """Write ``report.html`` into the folder of a crawl that has ended, and return its path."""
    path = jobdir / "report.html"
    path.write_text(_page(jobdir, list(_captures(jobdir))), encoding="utf-8")
    return path


def _captures(jobdir: Path) -> Iterator[IndexLine]:
    """Yield the captures of web pages; the seeds are archived too, as a ``urn:``."""
    for index in indexes_in(jobdir / "warc").there:
        with index.open("rb") as file:
            yield from (line for line in parsed(index, file) if line.url.startswith("http"))


def _page(jobdir: Path, found: Sequence[IndexLine]) -> str:
    hosts: defaultdict[str, list[IndexLine]] = defaultdict(list)
    for line in found:
        hosts[urlsplit(line.url).netloc].append(line)
    files = sorted((jobdir / "warc").glob(f"*{WARC}"))
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Crawl in {escape(str(jobdir))}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>
<body><h1>Crawl in {escape(str(jobdir))}</h1>
<p class="soft">A web on this machine, crawled by <code>make demo</code>. All that is listed is in
the WARC files, robots.txt included.</p>
<div class="sums"><div><b>{len(hosts):,}</b>hosts</div><div><b>{len(found):,}</b>captures</div>
<div><b>{len(files):,}</b>WARC {"file" if len(files) == 1 else "files"}</div>
<div><b>{_size(sum(path.stat().st_size for path in files))}</b>compressed</div></div>
{_replay(jobdir, found[0].url)}
<div class="pair"><div>{_shares("Status", (line.status for line in found))}</div>
<div>{_shares("MIME type", (line.mime for line in found))}</div></div>
{_files(files, found)}
<h2>Hosts and their pages</h2><p class="soft">The links open the copies once
<code>scrapy warc replay</code> runs.</p>
{"".join(_host(name, hosts[name]) for name in sorted(hosts, key=_natural))}
</body></html>
"""


def _replay(jobdir: Path, url: str) -> str:
    commands = "\n".join(replay_commands(jobdir))
    cat = f".venv/bin/scrapy warc cat {url} {jobdir}"
    return (
        "<h2>Replay</h2><p>pywb shows the pages in a browser. In the project's folder:</p>"
        f"<pre>{escape(commands)}</pre>"
        f'<p>Then open <a href="{REPLAY}{escape(url)}">{REPLAY}{escape(url)}</a>.</p>'
        "<p>Without pywb, print the answer for one URL as it was received:</p>"
        f"<pre>{escape(cat)}</pre>"
    )


def _shares(name: str, values: Iterable[str]) -> str:
    counts = Counter(_kind(value) for value in values)
    most = max(counts.values())
    rows = "".join(
        f'<tr><td>{escape(value)}</td><td class="number">{count:,}</td>'
        f'<td class="share"><i style="width: {100 * count / most:.1f}%"></i></td></tr>'
        for value, count in counts.most_common()
    )
    return f"<h2>{name}</h2><table>{rows}</table>"


def _kind(value: str) -> str:
    return "revisit (same body)" if value == REVISIT else value or "none"


def _files(files: Iterable[Path], found: Iterable[IndexLine]) -> str:
    captures = Counter(line.filename for line in found)
    rows = "".join(
        f'<tr><td><a href="warc/{escape(path.name)}">{escape(path.name)}</a></td>'
        f'<td class="number">{captures[path.name]:,}</td>'
        f'<td class="number">{_size(path.stat().st_size)}</td></tr>'
        for path in files
    )
    return (
        '<h2>WARC files</h2><table><tr><th>file</th><th class="number">captures</th>'
        f'<th class="number">size</th></tr>{rows}</table>'
    )


def _host(name: str, lines: Sequence[IndexLine]) -> str:
    rows = "".join(
        f'<tr><td><a href="{REPLAY}{escape(line.url)}">{escape(_path(line.url))}</a></td>'
        f'<td class="number">{escape(line.status)}</td><td>{escape(_kind(line.mime))}</td>'
        f'<td class="number">{_size(line.length)}</td></tr>'
        for line in lines
    )
    total = f"{counted(len(lines), 'capture')}, {_size(sum(line.length for line in lines))}"
    return (
        f'<details><summary><b>{escape(name)}</b><span class="soft">{total}</span></summary>'
        f"<table>{rows}</table></details>"
    )


def _natural(name: str) -> list[str]:
    """Return the sort key by which 127.0.0.9 is before 127.0.0.10."""
    return [part.zfill(12) for part in name.split(".")]


def _path(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def _size(number: float) -> str:
    return f"{number / 1e6:.1f} MB" if number >= 1e6 else f"{number / 1e3:.1f} kB"
