"""Measure what sheets of KROWL_POLICIES cost: to read them, to find those of a host, and a link."""

from __future__ import annotations

import statistics
from collections import defaultdict
from functools import partial
from time import process_time
from typing import TYPE_CHECKING

from krowlspider.policies.sheets import Policies

if TYPE_CHECKING:
    from collections.abc import Callable

# Hosts that are looked at for the first time, and looks at links of one host.
_HOSTS, _LINKS = 20_000, 200_000
_SHEET = (
    '[[sheet]]\nname = "s{0}"\nmatch = ["host{0}.example{1}.org"]\ndelay = {2}\nmax_pages = {0}\n'
)


def measure(sheets: int, rounds: int) -> dict[str, float]:
    """Return CPU seconds to read a file of so many sheets, each for a host, and microseconds of a
    new host and of a link, with and without a sheet: medians."""
    text = "".join(_SHEET.format(at, at % 1000, at % 50 + 1) for at in range(sheets))
    covered = [f"host{at % sheets}.example{at % sheets % 1000}.org" for at in range(_HOSTS)]
    others = [f"host{at}.other{at % 1000}.org" for at in range(_HOSTS)]
    found = defaultdict[str, list[float]](list)
    for _ in range(rounds):
        begun = process_time()
        policies = Policies.parse(text, "policies.toml")
        found["read_s"].append(process_time() - begun)
        for name, hosts in (("covered", covered), ("other", others)):
            found[f"new_{name}_host_us"].append(_each(policies.of_host, hosts))
        found["covered_link_us"].append(_each(partial(_of, policies), covered[:1]))
        found["other_link_us"].append(_each(policies.of_host, others[:1]))
    return {name: round(statistics.median(values), 2) for name, values in found.items()}


def _of(policies: Policies, host: str) -> object:
    sheets = policies.of_host(host)
    return None if sheets is None else sheets.of("/a/b?c=d")


def _each(look: Callable[[str], object], hosts: list[str]) -> float:
    """Return the microseconds of a look at each host, or at one host many times."""
    hosts = hosts if len(hosts) > 1 else hosts * _LINKS
    begun = process_time()
    for host in hosts:
        look(host)
    return (process_time() - begun) / len(hosts) * 1e6
