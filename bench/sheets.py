"""Measure what sheets of KROWL_POLICIES cost: to read them, to find those of a host, and a link."""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import TYPE_CHECKING, Any

from bench import trees
from bench.pages import Shape
from bench.web import BenchWeb
from krowlspider.policies.sheets import Policies

if TYPE_CHECKING:
    from collections.abc import Callable

# Hosts that are looked at for the first time, and looks at links of one host.
_HOSTS, _LINKS = 20_000, 200_000
_SHEET = (
    '[[sheet]]\nname = "s{0}"\nmatch = ["host{0}.example{1}.org"]\ndelay = {2}\nmax_pages = {0}\n'
)
_MIXED = (
    '[[sheet]]\nname = "s{0}"\nmatch = ["{1}"]\ndelay = {2}\nmax_pages = {0}\n'
    'exclude = ["/print/", "[?&]sort="]\n'
)


def measure(sheets: int, rounds: int) -> dict[str, float]:
    """Return CPU seconds to read a file of so many sheets, each for a host, and one of sheets with
    three keys each, of which half are for a path; and microseconds of a new host and of a link,
    with a sheet, with one for its path, and without: medians."""
    text, mixed = _file(sheets), _mixed_file(sheets)
    covered = [f"host{at % sheets + 1}.example{at % sheets % 1000}.org" for at in range(_HOSTS)]
    others = [f"host{at}.other{at % 1000}.org" for at in range(_HOSTS)]
    found = defaultdict[str, list[float]](list)
    for _ in range(rounds):
        for name, read in (("read_mixed_s", mixed), ("read_s", text)):
            begun = process_time()
            policies = Policies.parse(read, "policies.toml")
            found[name].append(process_time() - begun)
            if read is mixed:
                of_path = partial(_of, policies, path="/news/1/b?c=d")
                found["path_link_us"].append(_each(of_path, ["host1.example1.org"]))
        for name, hosts in (("covered", covered), ("other", others)):
            found[f"new_{name}_host_us"].append(_each(policies.of_host, hosts))
        found["covered_link_us"].append(_each(partial(_of, policies), covered[:1]))
        found["other_link_us"].append(_each(policies.of_host, others[:1]))
    return {name: round(statistics.median(values), 2) for name, values in found.items()}


def crawls(sheets: int, pages: int, rounds: int) -> dict[str, Any]:
    """Return CPU seconds of a start, and the pages for each CPU second with a file of so many
    sheets of other hosts, as a part of those without, for each round.

    Both crawl at once, on one core. Starts, which read the file, are subtracted.
    """
    few = 80
    shape = Shape(hosts=few, per_host=pages // few + 30)
    with BenchWeb(shape) as web, TemporaryDirectory() as name:
        os.sched_setaffinity(web.pid, trees.WEB)
        file = Path(name, "policies.toml")
        file.write_text(_file(sheets))
        options = ("-s", f"KROWL_POLICIES={file}"), ()

        def both(count: int) -> tuple[float, ...]:
            run = partial(trees.cpu_seconds, web, trees.HERE, count)
            with ThreadPoolExecutor(2) as pool:
                return tuple(pool.map(lambda words: run(*words), options))

        both(few)
        starts = [both(few) for _ in range(5)]
        begun, usual = (statistics.median(each) for each in zip(*starts, strict=True))
        found = [both(pages) for _ in range(rounds)]
    ratios = [round((lack - usual) / (have - begun), 4) for have, lack in found]
    return {
        "start_s": round(begun, 2),
        "start_without_s": round(usual, 2),
        "ratio": statistics.median(ratios),
        "rounds": ratios,
    }


def _file(sheets: int) -> str:
    return "".join(_SHEET.format(at + 1, at % 1000, at % 50 + 1) for at in range(sheets))


def _mixed_file(sheets: int) -> str:
    return "".join(
        _MIXED.format(at, f"org,example{at % 1000},host{at},)/news/{at % 7}", at % 50 + 1)
        if at % 2
        else _MIXED.format(at, f"host{at}.example{at % 1000}.org", at % 50 + 1)
        for at in range(sheets)
    )


def _of(policies: Policies, host: str, path: str = "/a/b?c=d") -> object:
    sheets = policies.of_host(host)
    return None if sheets is None else sheets.of(path)


def _each(look: Callable[[str], object], hosts: list[str]) -> float:
    """Return the microseconds of a look at each host, or at one host many times."""
    hosts = hosts if len(hosts) > 1 else hosts * _LINKS
    begun = process_time()
    for host in hosts:
        look(host)
    return (process_time() - begun) / len(hosts) * 1e6
