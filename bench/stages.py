"""Measure the CPU of a page by stage, in microseconds.

Two runs are made: one without a profiler for the CPU of a page, one with it for each stage's share.
A sample belongs to the stage of its innermost frame that the table below names. Samples without
such a frame are the remainder.
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

# Each stage with patterns of the frames "function (file)" that belong to it. The first stage whose
# pattern matches counts, so a function that a stage names comes before the stage of its whole file.
STAGES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("garbage collection", (r"gc_collect_main ",)),
    (
        "robots check",
        (
            r"frontier/robots/",
            r"krowlspider/politeness/(robots|path_rules)\.py",
            r"job/answers/robots_answers\.py",
            r"middlewares/robots\.py",
            r"Dispatcher\.(_verdict|_keep_crawl_delay|_own_robots_fetch)",
        ),
    ),
    (
        "pop",
        (
            r"engine/(dispatcher|waker)\.py",
            r"Scheduler\.next_request",
            r"HostScheduler\.(pop|pop_named|next_due)\b",
            r"EntryQueues\.(pop|unpop)\b",
        ),
    ),
    (
        "request build",
        (
            r"RequestCodec\.request\b",
            r"BroadSpider\.page_request",
            r"DownloadHandler\._request_headers",
            r"fetch/http/request\.py",
        ),
    ),
    ("connect", (r"fetch/(dial|guard)\.py", r"fetch/dns/", r"\.reserve_address ")),
    (
        "archive",
        (
            r"krowlspider/archive/",
            r"job/archiving/",
            r"DownloadHandler\.(_archive|_written) ",
            r"capture_of ",
        ),
    ),
    (
        "decode",
        (
            r"fetch/http/decode\.py",
            r"job/answers/decoders\.py",
            r"engine/responses\.py",
            r"scrapy/responsetypes\.py",
        ),
    ),
    (
        "send and receive",
        (
            r"krowlspider/fetch/",
            r"engine/handler\.py",
            r"job/loop_throttle\.py",
            r"uv__(stream_io|read|write|stream_destroy|finish_close)",
            r"UVStream",
            r"TCPTransport",
        ),
    ),
    (
        "dedup",
        (
            r"IdentityHasher",
            r"identity \(krowlspider/urls/canonical\.py",
            r"frontier/seen/",
            r"DuplicateBodies\.",
            r"engine/dupefilter\.py",
            r"rbloom",
        ),
    ),
    ("canonicalise", (r"urls/canonical\.py", r"can_ada")),
    ("parse", (r"urls/page/", r"BroadSpider\._?(parse|read)", r"frostwork")),
    (
        "scope",
        (
            r"urls/(host|scope|traps|blocks)\.py",
            r"Intake\.(refusal|_may_link)",
        ),
    ),
    (
        "enqueue",
        (
            r"job/intake\.py",
            r"frontier/(admission|budget)\.py",
            r"Frontier\.(add|queue|_forward)\b",
            r"EntryQueues\.append",
            r"Scheduler\.enqueue_request",
            r"BroadSpider\._(follow|discover|redirect)",
            r"RequestCodec\.entry",
        ),
    ),
    (
        "politeness",
        (
            r"middlewares/politeness\.py",
            r"krowlspider/politeness/(delay|loop_cost|outage)\.py",
            r"job/answers/(host_feedback|outages)\.py",
            r"frontier/schedule/deferral\.py",
            r"HostScheduler\.(release|give_back|rest_longer)",
            r"Flights\.(end|charge|charge_page) ",
        ),
    ),
    (
        "ack and commit",
        (
            r"job/checkpoint\.py",
            r"[Cc]ommit",
            r"Job\.make_durable",
            r"Frontier\.(acknowledge|_upkeep)",
            r"Flights\.finish ",
        ),
    ),
    (
        "crash marks",
        (
            r"frontier/work_mark\.py",
            r"engine/crash_marking\.py",
            r"InFlight\.mark ",
        ),
    ),
    (
        "stats",
        (
            r"scrapy/(statscollectors|extensions)",
            r"extensions/(core_stats|loop_lag|metrics|status)\.py",
            r"krowlspider/engine/stats\.py",
            r"job/(status\.py|monitoring/)",
        ),
    ),
    (
        "engine",
        (
            r"\(scrapy/(?!http/|cmdline|crawler|__main__)",
            r"\(twisted/(?!internet/asyncioreactor)",
            r"\(krowlspider/(engine|internals)/",
            r"\(middlewares/",
            r"\((asyncio|concurrent)/",
        ),
    ),
)
_TABLE = [(stage, re.compile("|".join(patterns))) for stage, patterns in STAGES]
_RUNNING = "AsyncioSelectorReactor.run "
START, LOOP, THREADS, REST = "start and end", "event loop", "threads of C++", "no stage"


def stage_of(stack: Stack) -> str:
    """Return the stage of a sample."""
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
    """Return the CPU of each stage of a page, in microseconds. Write the stacks to ``results``."""
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
    """Return each stage's share of all CPU."""
    weights = profile.weights_of(found, ticks)
    parts: dict[str, float] = defaultdict(float)
    for stack in found:
        parts[stage_of(stack)] += stack.count * weights[stack.thread]
    # Threads that run no Python, such as LevelDB's compaction.
    native = sum(used for thread, used in ticks.items() if thread not in weights)
    parts[THREADS] = native / ticks.total()
    return parts


def table(figures: dict[str, Any]) -> str:
    page = figures["cpu_us_per_page"]
    lines = [f"\nA page takes {page:,} µs of CPU and {figures['requests_per_page']} requests:"]
    lines += [
        f"  {stage:<24}{used:>7,} µs {used / page:>7.1%}"
        for stage, used in figures["stages"].items()
    ]
    return "\n".join(lines)
