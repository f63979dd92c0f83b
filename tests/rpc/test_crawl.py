"""The control service of a real crawl."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import socket
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.job.monitoring.access import CONTROL_TOKEN
from krowlspider.rpc.client import connect, results
from krowlspider.rpc.results import ArchiveReader
from tests.extensions.test_live_page import SPEC
from tests.mockweb import MockWeb
from tests.support.crawling import Crawl, write_seeds

grpc = pytest.importorskip("grpc")
pb = pytest.importorskip("krowlspider.rpc.generated.krowl_pb2")
health = pytest.importorskip("grpc_health.v1.health_pb2")
health_grpc = pytest.importorskip("grpc_health.v1.health_pb2_grpc")

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

Code = grpc.StatusCode
REFUSED = (Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION)
SERVER = b"krowlspider.rpc.serve"
ON = {"KROWL_GRPC": "127.0.0.1:0", "PROMETHEUS_ENABLED": 1, "KROWL_DELAY_MIN": 0.5}


def make_crawl(folder: Path, web: MockWeb, **more: object) -> Crawl:
    seeds = write_seeds(folder / "seeds.txt", [web.url("a.test")])
    return Crawl(folder / "job", arguments={"seeds": seeds}, settings={**ON, **more})


def address_of(run: Crawl, times: int = 1) -> str:
    """Return the address of the server that was started so many times, once it is there."""
    pattern = r"gRPC is served at (127.0.0.1:\d+)"
    run.wait_until(lambda: len(re.findall(pattern, run.log)) >= times)
    return re.findall(pattern, run.log)[-1]


@contextmanager
def stub_of(run: Crawl, token: str = "") -> Iterator[Any]:
    address = address_of(run)
    with connect(address, token or (run.jobdir / CONTROL_TOKEN).read_text().strip()) as stub:
        yield stub


def code_of(call: Any, request: Any) -> tuple[Any, str]:
    with pytest.raises(grpc.RpcError) as refused:
        call(request, timeout=30)
    return refused.value.code(), refused.value.details()


def children_of(pid: int) -> list[int]:
    """Return the processes that serve gRPC for a process."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if parent == str(pid) and SERVER in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def check_the_questions(crawl: Any, own: str) -> None:
    status = crawl.GetStatus(pb.GetStatusRequest())
    assert status.spider == "broad"
    assert status.done >= 1
    assert status.fetched["robots"] == 1
    assert status.statuses["200"] > 1
    assert not status.paused
    found = crawl.Explain(pb.ExplainRequest(url=f"{own}secret"))
    assert (found.state, found.setting) == ("queued", "ROBOTSTXT_OBEY")
    assert found.ahead > 1
    (host,) = crawl.ListHosts(pb.ListHostsRequest(limit=1, sort="queued")).hosts
    assert own == f"http://{host.host}/"
    assert host.delay == 0.5
    asked = pb.ListHostsRequest(sort="names")
    assert code_of(crawl.ListHosts, asked)[0] is Code.INVALID_ARGUMENT


def check_the_orders(run: Crawl, crawl: Any, own: str) -> None:
    urls = [
        f"{own}new",
        f"{own}new",
        "two words",
        "ftp://a.test/",
        f'{own}x\t{{"depth": 9}}',
        f"{own}\0",
    ]
    found = crawl.SubmitUrls(pb.SubmitUrlsRequest(urls=urls, max_depth=0, tag="of a program"))
    assert (found.new, found.known, found.bad) == (1, 1, 4)
    assert [each.index for each in found.bad_urls] == [2, 3, 4, 5]
    assert code_of(crawl.SubmitUrls, pb.SubmitUrlsRequest())[0] is Code.INVALID_ARGUMENT
    wrong = pb.SubmitUrlsRequest(urls=[f"{own}y"], priority=1000)
    assert crawl.SubmitUrls(wrong).bad == 1

    done = crawl.SetCrawlerState(pb.SetCrawlerStateRequest(paused=True)).outcome
    assert (done.done, done.message.partition(":")[0]) == (True, "paused")
    time.sleep(1.1)
    assert "paused" in crawl.GetStatus(pb.GetStatusRequest()).paused
    crawl.SetCrawlerState(pb.SetCrawlerStateRequest(paused=False))

    asked = pb.UpsertDomainPolicyRequest(domain="b.test", delay=3, blocked=True)
    assert all(each.done for each in crawl.UpsertDomainPolicy(asked).outcomes)
    found = crawl.SubmitUrls(pb.SubmitUrlsRequest(urls=[own.replace("a.test", "b.test")]))
    assert found.new == 1
    (row,) = crawl.ListHosts(pb.ListHostsRequest(sort="delay", limit=1)).hosts
    assert (row.delay, row.HasField("due_in")) == (3, False)
    asked = pb.UpsertDomainPolicyRequest(domain="b.test", delay=-1, blocked=False)
    assert all(each.done for each in crawl.UpsertDomainPolicy(asked).outcomes)
    empty = pb.UpsertDomainPolicyRequest(domain="b.test")
    assert code_of(crawl.UpsertDomainPolicy, empty)[0] is Code.INVALID_ARGUMENT
    for seconds in (math.nan, math.inf, -2, 1e9):
        wrong = pb.UpsertDomainPolicyRequest(domain="b.test", delay=seconds)
        assert code_of(crawl.UpsertDomainPolicy, wrong)[0] is Code.INVALID_ARGUMENT
    check_the_sheet(run, crawl)
    for url in ("", "http://a.test/" + "x" * 9000):
        asked = pb.ExplainRequest(url=url)
        assert code_of(crawl.Explain, asked)[0] is Code.INVALID_ARGUMENT

    assert crawl.BlockHost(pb.BlockHostRequest(name="c.test")).outcome.done
    assert crawl.UnblockHost(pb.UnblockHostRequest(name="c.test")).outcome.done
    assert not crawl.UnblockHost(pb.UnblockHostRequest(name="c.test")).outcome.done
    assert code_of(crawl.BlockHost, pb.BlockHostRequest())[0] is Code.INVALID_ARGUMENT

    again = crawl.ForceRecrawl(pb.ForceRecrawlRequest(urls=[own, f"{own}secret"])).outcomes
    assert [each.done for each in again] == [True, False]
    # Without a scheme it would be the host that is forgotten.
    asked = pb.ForceRecrawlRequest(urls=["a.test"])
    assert code_of(crawl.ForceRecrawl, asked)[0] is Code.INVALID_ARGUMENT
    run.wait_until(lambda: "Forget by gRPC from " in run.log)


def check_the_sheet(run: Crawl, crawl: Any) -> None:
    """It is in the file of people, and in force."""
    asked = pb.UpsertDomainPolicyRequest(domain="b.test", max_depth=2, exclude=["/print/"])
    (done,) = crawl.UpsertDomainPolicy(asked).outcomes
    assert done.done
    assert 'has depth = 2, exclude = ["/print/"]: in force within' in done.message
    assert not crawl.UpsertDomainPolicy(asked).outcomes[0].done
    run.wait_until(lambda: "KROWL_POLICIES: 1 sheet," in run.log)
    found = crawl.Explain(pb.ExplainRequest(url="http://b.test/print/1"))
    assert (found.state, found.setting) == ("refused", "KROWL_POLICIES")
    for wrong in (
        pb.UpsertDomainPolicyRequest(domain="b.test", delay=9, exclude=["("]),
        pb.UpsertDomainPolicyRequest(domain="b.test", max_depth=1, remove_sheet=True),
        pb.UpsertDomainPolicyRequest(domain="co.uk", max_depth=1),
    ):
        assert code_of(crawl.UpsertDomainPolicy, wrong)[0] is Code.INVALID_ARGUMENT
    asked = pb.UpsertDomainPolicyRequest(domain="b.test", remove_sheet=True)
    assert "is removed" in crawl.UpsertDomainPolicy(asked).outcomes[0].message
    run.wait_until(lambda: run.log.count("KROWL_POLICIES: 0 sheets,") > 1)


def check_the_stream(crawl: Any, own: str) -> str:
    """Return a token behind some results."""
    got: list[str] = []
    for message in results(crawl, from_start=True, hosts=["a.test"]):
        got += [each.url for each in message.results]
        if len(got) >= 5:
            break
    assert got[:2] == [f"{own}robots.txt", own]
    asked = pb.StreamResultsRequest(resume_token="x")
    with pytest.raises(grpc.RpcError, match="is not of this crawl"):
        next(crawl.StreamResults(asked))
    return message.resume_token


def test_a_client_watches_and_steers_a_crawl(tmp_path: Path) -> None:
    with MockWeb(spec=SPEC) as web:
        (tmp_path / "policies.toml").write_text("# by people\n")
        run = make_crawl(tmp_path, web, KROWL_POLICIES=tmp_path / "policies.toml")
        own = web.url("a.test")
        run.start().wait_until(lambda: any(entry.path == "/0" for entry in web.log()))
        with stub_of(run) as crawl:
            check_the_questions(crawl, own)
            check_the_orders(run, crawl, own)
            check_the_stream(crawl, own)
        with stub_of(run, "x" * 16) as crawl:
            assert code_of(crawl.GetStatus, pb.GetStatusRequest())[0] is Code.UNAUTHENTICATED
        (child,) = children_of(run.process.pid)
        threads = [int(each.name) for each in Path(f"/proc/{child}/task").iterdir()]
        assert {os.getpriority(os.PRIO_PROCESS, each) for each in threads} == {19}
        run.interrupt()
        assert not Path(f"/proc/{child}").exists()
    assert run.stats["krowl/grpc/call_count"] > 10
    assert run.stats["krowl/grpc/refused_count/token"] == 1
    assert "Traceback" not in run.log


def test_a_client_that_comes_back_misses_no_result(tmp_path: Path) -> None:
    """The crawl is killed and started again meanwhile."""
    got: list[str] = []
    # On a busy machine, gRPC has its turn late: the crawl must not end before.
    slow = {"KROWL_DELAY_MIN": 1}
    with MockWeb(spec=SPEC) as web:
        run = make_crawl(tmp_path, web, **slow).start()
        with stub_of(run) as crawl:
            for message in results(crawl, from_start=True):
                got += [each.url for each in message.results]
                if len(got) > 3:
                    break
        (child,) = children_of(run.process.pid)
        run.kill()
        wait_for_the_end(child)
        before, token = len(got), message.resume_token
        run = make_crawl(tmp_path, web, **slow).start()
        with stub_of(run) as crawl:
            for message in results(crawl, resume_token=token):
                got += [each.url for each in message.results]
                if len(got) > before + 5:
                    break
        run.interrupt()
    archive, written = ArchiveReader({"": run.jobdir / "warc"}), []
    while (found := archive.step())[1]:
        written += [each.line.url for each in found[0]]
    assert got == written[: len(got)]
    assert len(list((run.jobdir / "warc").glob("*.warc.gz"))) == 2
    assert message.missed_files == 0


def wait_for_the_end(pid: int) -> None:
    end = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_its_process_is_started_again(tmp_path: Path) -> None:
    """The crawl goes on meanwhile, and the health service is as ready as the crawl."""
    with MockWeb(spec=SPEC) as web:
        run = make_crawl(tmp_path, web, KROWL_DELAY_MIN=5).start()
        address_of(run)
        (child,) = children_of(run.process.pid)
        os.kill(child, signal.SIGKILL)
        address = address_of(run, times=2)
        with grpc.insecure_channel(address) as channel:
            check = health_grpc.HealthStub(channel).Check
            run.wait_until(lambda: check(health.HealthCheckRequest()).status == 1)
            with stub_of(run) as crawl:
                crawl.SetCrawlerState(pb.SetCrawlerStateRequest(paused=True))
                run.wait_until(lambda: check(health.HealthCheckRequest()).status == 2)
        # The end of the crawl does not wait for one that hangs.
        (child,) = children_of(run.process.pid)
        os.kill(child, signal.SIGSTOP)
        run.interrupt()
        assert not Path(f"/proc/{child}").exists()
    assert "gRPC is not served: its process has ended" in run.log


def test_a_port_in_use_stops_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, MockWeb(spec=SPEC) as web:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        run = make_crawl(tmp_path, web, KROWL_GRPC=address).run(code=2)
        assert f"KROWL_GRPC={address} cannot be listened at (Address already in use)" in run.log
        run = make_crawl(tmp_path, web, KROWL_GRPC="0.0.0.0:0").run(code=2)
        assert "is reached from other machines, and without TLS" in run.log
        run = make_crawl(tmp_path, web, PROMETHEUS_ENABLED=0).run(code=2)
        assert "KROWL_GRPC is set, and PROMETHEUS_ENABLED is False" in run.log
        assert web.log() == []
    assert "Traceback" not in run.log


def test_off_it_imports_nothing(tmp_path: Path) -> None:
    with MockWeb(spec=SPEC) as web:
        run = make_crawl(tmp_path, web, KROWL_GRPC="", KROWL_DELAY_MIN=0.05)
        run.settings = {**run.settings, "EXTENSIONS": json.dumps({"tests.rpc.loaded.Loaded": 1})}
        # A warm process has modules of the tests.
        run.cold = True
        run.run()
    assert run.stats["modules of gRPC"] == 0
