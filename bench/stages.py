"""Microseconds of CPU for a page, by stage: a sampling profile's shares of the CPU of a run that
nobody watched.

A sample belongs to the stage of its innermost frame that the table below names; what the table
names nowhere is the remainder. Two runs are made, one for the CPU of a page and one for the shares.
"""

from __future__ import annotations

import re
from collections import defaultdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from bench import crawl, profile

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

    from bench.pages import Shape
    from bench.profile import Stack

# Stage, and what matches the frames "function (file)" that belong to it; the first that matches
# counts.
STAGES = (
    ("garbage collection", r"gc_collect_main "),
    ("pop", r"(Frontier|HostScheduler)\.(pop|unpop|pop_host|next_due)\b|Scheduler\.(next_request|_next|_next_of|_send|_wake)"),
    ("robots check", r"frontier/robots/|politeness/(robots|path_rules)|middlewares/robots|_verdict|_own_robots_fetch"),
    ("request build", r"RequestCodec\.request|page_request|_request_headers|fetch/http/request\.py"),
    ("connect", r"fetch/(dial|guard)\.py|fetch/dns/|Scheduler\.reserve_address"),
    ("archive", r"krowlspider/(archive/|crawl/provenance\.py)|DownloadHandler\._archive|_capture |\._written "),
    ("decode", r"fetch/http/decode\.py|(?:response_of|headers_of) \(krowlspider/engine/responses|responsetypes"),
    ("send and receive", r"krowlspider/(fetch/|engine/handler\.py)|uv__(stream_io|read|write|stream_destroy|finish_close)|UVStream|TCPTransport"),
    ("canonicalise", r"normalise|_accept |can_ada"),
    ("parse", r"urls/page/(links|bound|headers)\.py|BroadSpider\._?(parse|read)|frostwork"),
    ("dedup", r"IdentityHasher|identity \(krowlspider/urls|frontier/seen/|urls/rules/duplicates|dupefilter|rbloom"),
    ("scope", r"urls/(rules/(scope|traps|exclude)|host)\.py|Intake\.refusal"),
    ("enqueue", r"Frontier\.(add|_append|_add)|Intake\.|Scheduler\.enqueue|BroadSpider\._(follow|discover)|RequestCodec\.entry|LevelStore\.write"),
    ("politeness", r"middlewares/politeness|politeness/delay|outage|(Frontier|HostScheduler)\.(release|wait|give_back|defer)|Scheduler\.ended"),
    ("ack and commit", r"Frontier\.(acknowledge|begin_commit|end_commit)|Commit\.|commit|checkpoint|Scheduler\._over"),
    ("marks of pages at work", r"frontier/work_mark|engine/crash_marking"),
    ("stats", r"scrapy/(statscollectors|extensions)|extensions/status"),
    ("engine", r"\((scrapy/(?!http/|cmdline|crawler|__main__)|twisted/(?!internet/asyncioreactor)|krowlspider/engine/(downloader|runner)|middlewares/|asyncio/|concurrent/)"),
)  # fmt: skip
_TABLE = [(stage, re.compile(pattern)) for stage, pattern in STAGES]
_RUNNING = "AsyncioSelectorReactor.run "
START, LOOP, THREADS, REST = "start and end", "event loop", "threads of C++", "not named"


def stage_of(stack: Stack) -> str:
    """The stage of a sample."""
    for frame in reversed(stack.frames):
        for stage, pattern in _TABLE:
            if pattern.search(frame):
                running = any(frame.startswith(_RUNNING) for frame in stack.frames)
                return stage if running or not _is_main(stack) else START
    if not _is_main(stack):
        return REST
    if not any(frame.startswith(_RUNNING) for frame in stack.frames):
        return START
    return LOOP if any("loop.c" in frame for frame in stack.frames) else REST


def _is_main(stack: Stack) -> bool:
    return any("_run_module_as_main" in frame for frame in stack.frames) or not stack.name


def measure(shape: Shape, pages: int, results: Path) -> dict[str, Any]:
    """The stages of a crawl's page, in microseconds; the flame graph and the stacks go to
    ``results``."""
    runs = crawl.measure(shape, ["krowlspider"], crawl.Plan(pages, rounds=1))
    run = runs["crawlers"]["krowlspider"]["runs"][0]
    raw = results / "profile.txt"
    ticks = profile.record(shape, pages, raw, flame=False)
    found = profile.stacks(raw)
    print(profile.top(found, ticks))
    parts = shares(found, ticks)
    page = run["cpu_seconds"] / run["pages"] * 1e6
    return {
        "cpu_us_per_page": round(page),
        "pages": run["pages"],
        "requests_per_page": run["requests_per_page"],
        "stages": {
            stage: round(share * page)
            for stage, share in sorted(parts.items(), key=itemgetter(1), reverse=True)
        },
    }


def shares(found: list[Stack], ticks: Counter[int]) -> dict[str, float]:
    """The part of all CPU that each stage has."""
    weights = profile.weights_of(found, ticks)
    parts: dict[str, float] = defaultdict(float)
    for stack in found:
        parts[stage_of(stack)] += stack.count * weights[stack.thread]
    # LevelDB's merges, and all else that runs no Python.
    silent = sum(used for thread, used in ticks.items() if thread not in weights)
    parts[THREADS] = silent / ticks.total()
    return parts


def table(figures: dict[str, Any]) -> str:
    page = figures["cpu_us_per_page"]
    lines = [
        f"\nA page takes {page:,} µs of CPU, {figures['requests_per_page']} requests; of them:"
    ]
    lines += [
        f"  {stage:<24}{used:>7,} µs {used / page:>7.1%}"
        for stage, used in figures["stages"].items()
    ]
    return "\n".join(lines)
