"""Measure what floods of gRPC calls, CDX queries, searches and SQL queries cost a crawl.

Two crawls of one web share a core. In turns of some seconds, one of them and then the other gets
the flood. In each turn the two are compared, so that what else the machine does meets both alike.
The web and the flood have the other core.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from bench.crawlers import Task, cpu_seconds_of, krowlspider_command
from bench.follow import running
from bench.process import CORE as CRAWLERS_CORE
from bench.web import CORE, BenchWeb
from krowlspider.job.monitoring.access import CONTROL_TOKEN, PAGE, noted_url
from tests.support.crawling import ROOT, write_seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.pages import Shape

# Seconds of the crawls before the first turn, of a flood before it is measured, of a turn.
_BEFORE, _START, _TURN = 20.0, 4.0, 8.0
# Seconds for an answer: a query takes long on a core that is shared.
_PATIENCE = 180.0
# Clients of a flood, each of which asks again at once.
_CLIENTS = 16
_SQL = "SELECT domain, count(*) FROM queue GROUP BY ALL ORDER BY 2 DESC LIMIT 10"


def measure(
    shape: Shape, *, pages: int, rounds: int, floods: Sequence[str]
) -> list[dict[str, Any]]:
    """Return a row for each flood, "none" being without one: ``cores`` that it takes of the crawl's
    process, as mean of ``rounds`` pairs of turns with its standard error; what a crawl with a core
    of its own would have left (``kept``); the cores that the crawls had; and the answers that the
    flood got.

    What the flood takes is bounded in each second, however much of a core the crawl has. So on a
    busy machine the ratio of two rates would say nothing.

    :raises RuntimeError: the crawls have ended before
    """
    with BenchWeb(shape) as web, tempfile.TemporaryDirectory(prefix="krowl-bench-") as name:
        seeds = web.shape.seeds(web.shape.hosts)
        with ExitStack() as stack:
            crawls = []
            for half in (0, 1):
                scratch = Path(name) / str(half)
                scratch.mkdir()
                file = write_seeds(scratch / "seeds.txt", seeds[half::2])
                settings = {
                    "KROWL_GRPC": "127.0.0.1:0",
                    "KROWL_WARC_MAX_SIZE": 5_000_000,
                    "KROWL_SEARCH": Path(name) / "index",
                }
                command = krowlspider_command(Task(web, file, pages, scratch, settings=settings))
                log = scratch / "log"
                process = stack.enter_context(running(command, log, CRAWLERS_CORE))
                crawls.append(_Crawl(process.pid, scratch / "job", log))
            time.sleep(_BEFORE)
            if "search" in floods:
                words = ["scrapy", "index", crawls[0].jobdir, "-o", Path(name) / "index"]
                subprocess.run([sys.executable, "-m", *words], cwd=ROOT, check=True)
            return [_row(flood, crawls, rounds) for flood in floods]


class _Crawl:
    def __init__(self, pid: int, jobdir: Path, log: Path):
        self.pid, self.jobdir, self.log = pid, jobdir, log

    def figures(self) -> tuple[float, float]:
        """Return the pages done and the CPU seconds used.

        :raises RuntimeError: it has ended
        """
        try:
            with urlopen(f"{noted_url(self.jobdir, PAGE)}/api/v1/status") as answer:
                return json.load(answer)["done"], cpu_seconds_of(self.pid)
        except (OSError, ValueError) as error:
            raise RuntimeError(
                f"the crawl in {self.jobdir} has ended: give more --pages"
            ) from error


def _row(flood: str, crawls: list[_Crawl], rounds: int) -> dict[str, Any]:
    taken, had, answers = [], [], 0
    for _ in range(rounds):
        # The second turn, with the crawls swapped, takes out what differs between them.
        pair = [_turn(flood, *order) for order in (crawls, crawls[::-1])]
        taken.append(statistics.mean(cores for cores, _ in pair))
        had += [cores for _, cores in pair]
        if flood in COUNTED:
            answers += sum(_answers(crawl.jobdir, flood) for crawl in crawls)
    error = statistics.stdev(taken) / len(taken) ** 0.5 if len(taken) > 1 else 0.0
    return {
        "flood": flood,
        "rounds": rounds,
        "cores": round(statistics.mean(taken), 3),
        "standard_error": round(error, 3),
        "kept": round(1 - statistics.mean(taken), 3),
        "cores_of_a_crawl": round(statistics.mean(had), 2),
        "answers": answers,
    }


def _turn(flood: str, flooded: _Crawl, alone: _Crawl) -> tuple[float, float]:
    """Return the cores that a flood takes of a crawl's process: what it uses beyond what the other
    crawl uses for as many pages; and the cores that the other has."""
    command = [sys.executable, "-m", "bench.beside", flood, flooded.jobdir, flooded.log]
    with ExitStack() as stack:
        if flood != "none":
            log = flooded.jobdir.parent / f"{flood}.log"
            stack.enter_context(running(list(map(str, command)), log, CORE))
        time.sleep(_START)
        if flood in COUNTED:
            _await_answer(flooded.jobdir, flood, 0)
        crawls = flooded, alone
        begun = time.monotonic()
        before = [each.figures() for each in crawls]
        answers = _count(flooded.jobdir, flood)
        time.sleep(_TURN)
        if flood in COUNTED:
            # A whole query at least, whose parts cost the crawl more and less.
            _await_answer(flooded.jobdir, flood, answers)
        seconds = time.monotonic() - begun
        after = [each.figures() for each in crawls]
    (pages, cpu), (pages_alone, cpu_alone) = (
        (done - done_before, used - used_before)
        for (done, used), (done_before, used_before) in zip(after, before, strict=True)
    )
    return (cpu - pages * cpu_alone / pages_alone) / seconds, cpu_alone / seconds


# --- the floods, each a process of its own ---


def _answered(jobdir: Path, flood: str) -> None:
    """Count an answer that is none of a refusal."""
    with (jobdir.parent / f"{flood}.answers").open("a") as file:
        file.write(".")


def _count(jobdir: Path, flood: str) -> int:
    file = jobdir.parent / f"{flood}.answers"
    return file.stat().st_size if file.exists() else 0


def _await_answer(jobdir: Path, flood: str, before: int) -> None:
    """Wait until a flood has more answers than before.

    :raises RuntimeError: it gets none: it is no flood
    """
    end = time.monotonic() + _PATIENCE
    while _count(jobdir, flood) <= before:
        if time.monotonic() > end:
            log = (jobdir.parent / f"{flood}.log").read_text()[-500:]
            raise RuntimeError(f"the flood {flood} gets no answer: {log}")
        time.sleep(0.5)


def _answers(jobdir: Path, flood: str) -> int:
    """Return how many answers a flood got, and forget them."""
    count = _count(jobdir, flood)
    (jobdir.parent / f"{flood}.answers").unlink()
    return count


def _grpc(jobdir: Path, log: Path) -> None:
    """Ask for the status and send URLs, with the token and with a wrong one; send 10,000 URLs, send
    messages over the limit, block a host, and open streams of results that are never read."""
    import grpc.aio  # noqa: PLC0415

    from krowlspider.rpc.generated import krowl_pb2 as pb  # noqa: PLC0415
    from krowlspider.rpc.generated import krowl_pb2_grpc as pb_grpc  # noqa: PLC0415

    address = log.read_text().partition("gRPC is served at ")[2].split()[0]
    token = (jobdir / CONTROL_TOKEN).read_text().strip()
    many = [f"http://flood.test/{number}" for number in range(10_000)]
    large = pb.ExplainRequest(url=" " * 20_000_000)

    async def steer(stub: Any, access: Any) -> None:
        await stub.GetStatus(pb.GetStatusRequest(), metadata=access)
        await stub.SubmitUrls(pb.SubmitUrlsRequest(urls=many[:1]), metadata=access)
        _answered(jobdir, "grpc")

    async def submit(stub: Any, access: Any) -> None:
        await stub.SubmitUrls(pb.SubmitUrlsRequest(urls=many), metadata=access)

    async def send(stub: Any, access: Any) -> None:
        await stub.Explain(large, metadata=access)

    async def block(stub: Any, access: Any) -> None:
        await stub.BlockHost(pb.BlockHostRequest(name="flood.test"), metadata=access)

    async def open_stream(stub: Any, access: Any) -> None:
        stream = stub.StreamResults(pb.StreamResultsRequest(from_start=True), metadata=access)
        await stream.code()

    async def client(number: int) -> None:
        # Half of them steer, and half of these have a wrong token.
        call = (steer, submit, steer, send, steer, block, steer, open_stream)[number % 8]
        access = (("authorization", f"Bearer {'wrong' if number % 4 == 0 else token}"),)
        async with grpc.aio.insecure_channel(address) as channel:
            while True:
                with suppress(grpc.RpcError):
                    await call(pb_grpc.CrawlServiceStub(channel), access)

    async def clients() -> None:
        await asyncio.gather(*map(client, range(_CLIENTS)))

    asyncio.run(clients())


def _cdx(jobdir: Path, _: Path) -> None:
    """Ask for all captures, and for those of a host that has none."""
    # The web's hosts have addresses for names: these are all captures.
    _ask(jobdir, "cdx", ("/cdx?url=http://example.org/", "/cdx?urlkey=1&matchType=prefix"))


def _search(jobdir: Path, _: Path) -> None:
    """Ask for a word that most pages have, and for a phrase, by the page and by JSON."""
    _ask(jobdir, "search", ("/search?q=page", "/search.json?q=%22page+of%22+OR+page"))


def _ask(jobdir: Path, flood: str, targets: Sequence[str]) -> None:
    """Ask the live address for the targets, each client for one of them."""
    url = noted_url(jobdir, PAGE)
    host, port = str(url).removeprefix("http://").split(":")

    async def client(number: int) -> None:
        target = targets[number % len(targets)]
        asked = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(asked.encode())
                status = await reader.readline()
                while await reader.read(65_536):
                    pass
                writer.close()
                if b" 200 " in status:
                    _answered(jobdir, flood)

    async def clients() -> None:
        await asyncio.gather(*map(client, range(_CLIENTS)))

    asyncio.run(clients())


def _sql(jobdir: Path, _: Path) -> None:
    while True:
        subprocess.run([sys.executable, "-m", "scrapy", "sql", jobdir, _SQL], cwd=ROOT, check=True)
        _answered(jobdir, "sql")


def _catalogue(jobdir: Path, _: Path) -> None:
    folder = jobdir.parent / "catalogue"
    words = ["scrapy", "catalogue", str(jobdir), "-o", str(folder), "--follow"]
    os.nice(19)
    os.execv(sys.executable, [sys.executable, "-m", *words])


FLOODS: dict[str, Callable[[Path, Path], None]] = {
    "grpc": _grpc,
    "cdx": _cdx,
    "search": _search,
    "sql": _sql,
    "catalogue": _catalogue,
}
ALL = ("none", *FLOODS)
# Those that count their answers.
COUNTED = ("grpc", "cdx", "search", "sql")

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    FLOODS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
