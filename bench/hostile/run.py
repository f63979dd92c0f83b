"""A crawl of good hosts that comes upon an attack: what is left of their rate, and how long nobody
is asked."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.hostile.attacks import ATTACKS
from bench.hostile.web import HostileWeb, good_names
from bench.process import CORE
from tests.support.crawling import CONTACT, ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.hostile.web import Web

# Seconds: until the attack begins, of which the last are the rate before it; from there until the
# good hosts must have their share again; in which it is measured; for the crawl to end after
# SIGINT.
WARM_UP, BEFORE = 15.0, 5.0
SETTLE = 20.0
MEASURED = 15.0
_END = 60.0
# Of the crawl's log that are printed.
_LINES, _COLUMNS = 8, 300
_LOGGED = re.compile(r"(WARNING|ERROR|CRITICAL)")


def command(web: Web, names: Mapping[str, str], scratch: Path, **more: object) -> list[str]:
    """The crawl as a user starts it, with the default politeness, and ``more`` settings."""
    settings: dict[str, object] = {
        "JOBDIR": scratch / "job",
        "KROWL_CONTACT": CONTACT,
        "KROWL_ALLOW_ADDRESSES": "127.0.0.0/8",
        "KROWL_RESOLVE": json.dumps(dict(names)),
        "PROMETHEUS_PORT": 0,
        "TELNETCONSOLE_ENABLED": 0,
        **more,
    }
    seeds = scratch / "seeds.txt"
    seeds.write_text("".join(f"http://{name}:{web.port}/\n" for name in good_names()))
    start = [sys.executable, "-m", "scrapy", "crawl", "broad", "-a", f"seeds={seeds}"]
    return start + [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]


def begin(
    web: HostileWeb, names: Mapping[str, str], scratch: Path, log: Path, **more: object
) -> subprocess.Popen[bytes]:
    """Start the crawl on the crawlers' core."""
    pinned = ["taskset", "-c", str(CORE), *command(web.web, names, scratch, **more)]
    with log.open("wb") as out:
        return subprocess.Popen(pinned, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)


def measure(name: str) -> dict[str, Any]:
    """One attack: rates of the good hosts in requests per second, the longest silence in
    seconds."""
    attack = ATTACKS[name]
    with tempfile.TemporaryDirectory() as folder, HostileWeb([name]) as web:
        scratch = Path(folder)
        log = scratch / "log"
        process = begin(web, good_names() | attack.hosts, scratch, log)
        try:
            figures = _watch(web)
            figures["seconds_to_end"] = end(process)
        finally:
            if process.poll() is None:
                process.kill()
        _, _, used = os.wait4(process.pid, 0) if process.returncode is None else (0, 0, None)
        if used is not None:
            figures["rss_mb"] = used.ru_maxrss // 1024
        lines = [
            line for line in log.read_text(errors="replace").splitlines() if _LOGGED.search(line)
        ]
        return {"attack": name, "what": attack.what, "keep": attack.keep, **figures, "log": lines}


def _watch(web: HostileWeb) -> dict[str, Any]:
    time.sleep(WARM_UP)
    begun = time.monotonic()
    web.begin()
    before = [at for at in web.take()["good"] if begun - BEFORE <= at < begun]
    time.sleep(SETTLE)
    settling = web.take()
    time.sleep(MEASURED)
    after = web.take()
    end = time.monotonic()
    times = [begun, *settling["good"], *after["good"], end]
    rate = len(before) / BEFORE
    return {
        "before": round(rate, 1),
        "after": round(len(after["good"]) / MEASURED, 1),
        "kept": round(len(after["good"]) / MEASURED / rate, 2) if rate else 0.0,
        "silence": round(max(b - a for a, b in itertools.pairwise(times)), 2),
        "busiest_address": round(max(after["hostile"].values(), default=0) / MEASURED, 1),
        "ports": len(after["ports"]),
    }


def end(process: subprocess.Popen[bytes]) -> float | None:
    """Seconds from SIGINT to the end; None when it does not come."""
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    while time.monotonic() < begun + _END:
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return round(time.monotonic() - begun, 1)
        time.sleep(0.1)
    return None


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """As Markdown."""
    head = (
        "| attack | good hosts, requests/s before | after | kept | longest silence, s"
        " | busiest hostile address, requests/s | ports asked | memory, MB |"
    )
    lines = [head, "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        shown = [row["what"], row["before"], row["after"], f"{row['kept']:.0%}", row["silence"]]
        shown += [row["busiest_address"], row["ports"], row.get("rss_mb", "")]
        lines.append("| " + " | ".join(map(str, shown)) + " |")
    return "\n".join(lines)


def measure_all(names: Sequence[str]) -> list[dict[str, Any]]:
    """All attacks, or those named, one after the other, beside the good hosts."""
    rows = []
    for name in names or ATTACKS:
        row = measure(name)
        print({key: value for key, value in row.items() if key not in ("what", "log")}, flush=True)
        for line in row["log"][:_LINES]:
            print("   ", line[:_COLUMNS])
        rows.append(row)
    return rows
