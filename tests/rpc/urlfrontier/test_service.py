"""The service as clients see it: a real process, its streams, floods, and deaths."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.job.folder import REGISTER
from tests.support import warm
from tests.support.crawling import scrapy

grpc = pytest.importorskip("grpc")
pb = pytest.importorskip("krowlspider.rpc.generated.urlfrontier_pb2")
pb_grpc = pytest.importorskip("krowlspider.rpc.generated.urlfrontier_pb2_grpc")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ACK = pb.AckMessage
DEADLINE = 30.0
_WORDS = "URLFrontier of "
_WAY = "export the URLs of each "


class Served:
    """A process that serves a folder, at a port of its own."""

    def __init__(self, jobdir: Path, *, blocks: int | None = None, **settings: object):
        """``blocks`` is how large a file can be, as of `ulimit`."""
        self.jobdir = jobdir
        self._log = jobdir.with_name("log")
        options = [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
        command = [sys.executable, "-m", "scrapy", "frontier", str(jobdir), "--serve"]
        command += ["127.0.0.1:0", *options]
        with self._log.open("wb") as log:
            if blocks is None:
                self.process = warm.start(command, stdout=log, stderr=subprocess.STDOUT)
            else:
                shell = ["sh", "-c", f'ulimit -f {blocks}; exec "$@"', "sh", *command]
                self.process = subprocess.Popen(shell, stdout=log, stderr=subprocess.STDOUT)
        wait_until(lambda: _WORDS in self.log or self.process.poll() is not None)
        assert _WORDS in self.log, self.log
        self.port = self.log.partition(" at 127.0.0.1:")[2].partition(";")[0]
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        self.stub = pb_grpc.URLFrontierStub(self.channel)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def put(self, *items: Any) -> list[int]:
        return [ack.status for ack in self.stub.PutURLs(iter(items), timeout=DEADLINE)]

    def urls(self, **params: Any) -> list[str]:
        asked = pb.GetParams(anyCrawlID=pb.AnyCrawlID(), **params)
        return [info.url for info in self.stub.GetURLs(asked, timeout=DEADLINE)]

    def stats(self, crawl_id: str = "") -> Any:
        return self.stub.GetStats(pb.QueueWithinCrawlParams(crawlID=crawl_id), timeout=DEADLINE)

    def stop(self) -> None:
        self.channel.close()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(DEADLINE) == 0, self.log

    def kill(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.wait()


@contextmanager
def serving(jobdir: Path, **settings: object) -> Iterator[Served]:
    served = Served(jobdir, **settings)
    try:
        yield served
    except BaseException:
        served.kill()
        raise
    if served.process.poll() is None:
        served.stop()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "the condition never held"
        time.sleep(0.02)


def memory_of(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def discovered(url: str, crawl_id: str = "", **metadata: str) -> Any:
    info = pb.URLInfo(url=url, crawlID=crawl_id, key="ignored")
    for name, value in metadata.items():
        info.metadata[name].values.append(value)
    return pb.URLItem(discovered=pb.DiscoveredURLItem(info=info))


def known(url: str, refetch: int = 0) -> Any:
    item = pb.KnownURLItem(info=pb.URLInfo(url=url), refetchable_from_date=refetch)
    return pb.URLItem(known=item, ID="id")


def test_each_call_answers(tmp_path: Path):
    soon = int(time.time()) + 3600
    with serving(tmp_path / "job") as served:
        stub = served.stub
        items = [
            discovered("http://a.example/1", source="seed"),
            discovered("gopher://a.example/"),
            known("http://a.example/2", soon),
            known("http://a.example/3"),
            pb.URLItem(),
            discovered("http://b.example/", "X"),
        ]
        acks = list(stub.PutURLs(iter(items)))
        assert [ack.status for ack in acks] == [ACK.OK, ACK.SKIPPED, ACK.OK, ACK.OK, ACK.SKIPPED, 0]
        assert [ack.ID for ack in acks][:3] == ["http://a.example/1", "gopher://a.example/", "id"]
        batches = [
            pb.DiscoveredBatch(
                ID="b", items=[pb.URLInfo(url=f"http://c.example/{i}") for i in range(3)]
            ),
            pb.DiscoveredBatch(ID="none"),
        ]
        answers = list(stub.PutDiscovered(iter(batches)))
        assert [(each.ID, list(each.statuses)) for each in answers] == [
            ("b", [0, 0, 0]),
            ("none", []),
        ]
        assert list(stub.ListCrawls(pb.Local()).values) == ["DEFAULT", "X"]
        assert len(stub.ListNodes(pb.Empty()).values) == 1
        queues = stub.ListQueues(pb.Pagination(start=0, size=10))
        assert list(queues.values) == ["a.example", "c.example"]
        assert list(stub.ListQueues(pb.Pagination(start=1, size=1)).values) == ["c.example"]
        listed = list(stub.ListURLs(pb.ListUrlParams(key="a.example")))
        assert sorted(
            (each.known.info.url, each.known.refetchable_from_date > time.time()) for each in listed
        ) == [
            ("http://a.example/1", False),
            ("http://a.example/2", True),
            ("http://a.example/3", False),
        ]
        assert len(list(stub.ListURLs(pb.ListUrlParams(start=1, size=3)))) == 3
        assert stub.CountURLs(pb.CountUrlParams()).value == 6
        assert stub.CountURLs(pb.CountUrlParams(filter="C.EXAMPLE")).value == 0
        assert stub.CountURLs(pb.CountUrlParams(filter="C.EXAMPLE", ignoreCase=True)).value == 3
        status = stub.GetURLStatus(pb.URLStatusRequest(url="http://a.example/2"))
        assert status.known.refetchable_from_date == soon
        assert abs(status.creation_date - time.time()) < 60
        assert served.stats().size == 5
        assert stub.GetStats(pb.QueueWithinCrawlParams(key="a.example")).counts["completed"] == 1
        stub.SetCrawlLimit(pb.CrawlLimitParams(key="c.example", limit=5))
        stub.SetDelay(pb.QueueDelayParams(key="a.example", delay_requestable=5))
        stub.BlockQueueUntil(pb.BlockQueueParams(key="c.example", time=soon))
        assert list(stub.ListQueues(pb.Pagination()).values) == ["a.example"]
        stub.SetActive(pb.Active(state=False))
        assert not stub.GetActive(pb.Local()).state
        assert served.urls() == []
        stub.SetActive(pb.Active(state=True))
        stub.SetLogLevel(pb.LogLevelParams(package="krowlspider.rpc", level="DEBUG"))
        wait_until(lambda: served.urls(max_urls_per_queue=1) != [])
        assert served.stats().inProcess + served.stats("X").inProcess >= 1
        assert stub.PurgeURLs(pb.PurgeUrlParams(key="c.example", days=1)).value == 0
        assert stub.DeleteQueue(pb.QueueWithinCrawlParams(key="c.example")).value == 3
        assert stub.DeleteCrawl(pb.DeleteCrawlMessage(value="X")).value == 1
        assert list(stub.ListCrawls(pb.Local()).values) == ["DEFAULT"]


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda stub: stub.GetURLStatus(pb.URLStatusRequest(url="http://x.example/")), "NOT_FOUND"),
        (lambda stub: stub.SetCrawlLimit(pb.CrawlLimitParams(key="x.example")), "NOT_FOUND"),
        (lambda stub: stub.GetStats(pb.QueueWithinCrawlParams(key="a b")), "INVALID_ARGUMENT"),
        (lambda stub: stub.SetLogLevel(pb.LogLevelParams(package="root")), "INVALID_ARGUMENT"),
        (
            lambda stub: stub.SetLogLevel(pb.LogLevelParams(package="krowlspider.none")),
            "INVALID_ARGUMENT",
        ),
        (
            lambda stub: stub.SetLogLevel(pb.LogLevelParams(package="krowlspider.rpc", level=77)),
            "INVALID_ARGUMENT",
        ),
        (
            lambda stub: list(stub.PutURLs(iter([discovered(f"http://a/{'x' * 100_000_000}")]))),
            "RESOURCE_EXHAUSTED",
        ),
    ],
)
def test_a_bad_call_is_refused(jobless: Served, call: Callable[[Any], object], code: str):
    with pytest.raises(grpc.RpcError) as caught:
        call(jobless.stub)
    assert caught.value.code().name == code
    assert jobless.put(discovered("http://ok.example/")) == [ACK.OK]


def test_a_stream_ends_with_an_error_at_a_bad_message(jobless: Served):
    """What was sent before it is acknowledged."""
    good = discovered("http://good.example/").SerializeToString()
    put = jobless.channel.stream_stream("/urlfrontier.URLFrontier/PutURLs")
    call = put(iter([good, good.replace(b"good", b"\xff\xff\xff\xff"), good]), timeout=DEADLINE)
    assert pb.AckMessage.FromString(next(call)).status == ACK.OK
    with pytest.raises(grpc.RpcError, match="a message cannot be read"):
        next(call)
    assert call.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_open_streams_of_reports_keep_no_call_out(jobless: Served):
    """Each updater of StormCrawler keeps one open, and its spouts ask meanwhile."""
    more = threading.Event()

    def items() -> Iterator[Any]:
        yield discovered("http://held.example/")
        more.wait(DEADLINE)

    calls = [jobless.stub.PutURLs(items()) for _ in range(16)]
    assert [next(call).status for call in calls] == [ACK.OK] * 16
    asked = pb.GetParams(crawlID="DEFAULT", key="held.example")
    assert len(list(jobless.stub.GetURLs(asked, timeout=DEADLINE))) == 1
    more.set()
    assert [list(call) for call in calls] == [[]] * 16


def test_the_key_of_any_url_names_its_queue(jobless: Served):
    """Also that of a name which no person would give in an order."""
    assert jobless.put(discovered("http://a..odd.example/")) == [ACK.OK]
    soon = int(time.time()) + 3600
    jobless.stub.BlockQueueUntil(pb.BlockQueueParams(key="a..odd.example", time=soon))
    asked = pb.GetParams(crawlID="DEFAULT", key="a..odd.example")
    assert list(jobless.stub.GetURLs(asked, timeout=DEADLINE)) == []
    gone = jobless.stub.DeleteQueue(pb.QueueWithinCrawlParams(key="a..odd.example"))
    assert gone.value == 1


@pytest.fixture(scope="module")
def jobless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served") / "job") as served:
        yield served


_FLOOD = 20_000


def test_a_stream_whose_acks_are_not_read_is_bounded(jobless: Served):
    """A client that only sends is stopped; the others go on, and it may go on once it reads."""
    sent = 0

    def flood() -> Iterator[Any]:
        nonlocal sent
        for number in range(_FLOOD):
            sent = number
            item = discovered(f"http://flood{number % 50}.example/{number}")
            # The answer to it is as long.
            item.ID = "x" * 50_000
            yield item

    before = memory_of(jobless.process.pid)
    call = jobless.stub.PutURLs(flood())
    counts = [-1, -2]
    while counts[-1] != counts[-2]:
        time.sleep(0.5)
        counts.append(sent)
    assert sent < _FLOOD - 1
    assert memory_of(jobless.process.pid) - before < 200_000_000
    assert jobless.put(discovered("http://other.example/")) == [ACK.OK]
    assert next(call).status == ACK.OK
    call.cancel()
    assert jobless.put(discovered("http://other.example/2")) == [ACK.OK]


@pytest.mark.slow
def test_what_is_acknowledged_survives_a_kill(tmp_path: Path):
    """The process is killed in the middle of a stream, with leases out."""
    urls = [f"http://h{number % 40}.example/{number}" for number in range(20_000)]
    acked = []
    with serving(tmp_path / "job") as served:
        assert served.put(*map(discovered, urls[:40])) == [ACK.OK] * 40
        out: list[str] = []
        wait_until(lambda: bool(out.extend(served.urls(delay_requestable=600)) or len(out) >= 10))
        with suppress(grpc.RpcError):
            for ack in served.stub.PutURLs(iter(map(discovered, urls[40:]))):
                assert ack.status == ACK.OK
                acked.append(ack.ID)
                if len(acked) == 5000:
                    served.process.kill()
        served.process.wait()
        served.channel.close()
    with serving(tmp_path / "job") as served:
        assert len(acked) >= 5000
        assert served.stats().inProcess == len(out)
        found = set()
        for item in served.stub.ListURLs(pb.ListUrlParams(size=100_000)):
            found.add(item.known.info.url)
        assert {*acked, *urls[:40]} <= found
        assert not set(out) & set(served.urls())
        assert served.put(*map(known, out)) == [ACK.OK] * len(out)
        assert served.stats().counts["completed"] == len(out)


def test_an_open_stream_ends_with_the_server(tmp_path: Path):
    """What it had sent is acknowledged, and the log has no traceback."""
    with serving(tmp_path / "job") as served:
        more = threading.Event()

        def items() -> Iterator[Any]:
            yield discovered("http://a.example/")
            more.wait(DEADLINE)

        call = served.stub.PutURLs(items())
        assert next(call).status == ACK.OK
        served.process.send_signal(signal.SIGTERM)
        assert list(call) == []
        more.set()
        assert served.process.wait(DEADLINE) == 0
        assert "Traceback" not in served.log


@pytest.mark.slow
def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path):
    """What does not fit has failed, so its client sends it again. The process ends and says why."""
    urls = [f"http://h{number % 40}.example/{number}" for number in range(20_000)]
    acks: list[int] = []
    served = Served(tmp_path / "job", blocks=1000)
    with suppress(grpc.RpcError):
        for ack in served.stub.PutURLs(iter(map(discovered, urls))):
            acks.append(ack.status)  # noqa: PERF401 (the stream ends by an error)
    assert served.process.wait(DEADLINE) == 3, served.log
    assert "Traceback" not in served.log
    served.channel.close()
    taken = [url for url, ack in zip(urls, acks, strict=False) if ack == ACK.OK]
    assert ACK.FAIL in acks
    with serving(tmp_path / "job") as served:
        found = served.stub.ListURLs(pb.ListUrlParams(size=100_000))
        assert set(taken) <= {item.known.info.url for item in found}
        assert served.put(*map(discovered, urls)) == [ACK.OK] * len(urls)


def test_a_token_is_asked_for_where_one_is_set(tmp_path: Path):
    with serving(tmp_path / "job", KROWL_CONTROL_TOKEN="t" * 16) as served:
        asked = pb.Local()
        with pytest.raises(grpc.RpcError) as caught:
            served.stub.ListCrawls(asked)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        access = (("authorization", f"Bearer {'t' * 16}"),)
        assert list(served.stub.ListCrawls(asked, metadata=access).values) == []


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("0.0.0.0:7071", "from other machines"),
        ("7071", "is not HOST:PORT: give 127.0.0.1:7071"),
        ("", "empty name"),
    ],
)
def test_an_address_that_cannot_be_served_is_refused(tmp_path: Path, address: str, words: str):
    done = scrapy("frontier", tmp_path / "job", f"--serve={address}", code=2)
    assert f"--serve {address}".strip() in done.stderr.decode().replace("'", "")
    assert words in done.stderr.decode()
    assert not (tmp_path / "job").exists()


def test_a_folder_that_is_served_is_told_so(jobless: Served):
    said = scrapy("frontier", jobless.jobdir).stdout.decode()
    assert (
        f"is being served to other crawlers, as a URLFrontier at 127.0.0.1:{jobless.port}" in said
    )


def test_a_folder_of_others_is_left_as_it_was(tmp_path: Path):
    (tmp_path / "notes").write_text("mine")
    done = scrapy("frontier", tmp_path, "--serve", "127.0.0.1:0", code=2)
    assert b"is not empty and not a crawl's folder" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_a_folder_of_several_owners_is_refused(tmp_path: Path):
    """An order of a client would reach one of them. The way out is named."""
    node, tree = tmp_path / "node", tmp_path / "tree"
    tree.mkdir()
    for folder in (node, tree / "p1"):
        with serving(folder) as served:
            served.put(discovered("http://a.example/"))
    (tree / REGISTER).touch()
    head = json.loads((node / "job.json").read_text())
    (node / "job.json").write_text(json.dumps({**head, "ring": "r"}))
    for folder, words in (
        (node, f"belongs to a node of a cluster, whose other nodes own some of its hosts: {_WAY}"),
        (tree, _WAY),
        (tree / "p1", _WAY),
    ):
        done = scrapy("frontier", folder, "--serve", "127.0.0.1:0", code=2)
        assert words in done.stderr.decode()


@pytest.mark.slow
def test_orders_survive_a_kill(tmp_path: Path):
    """Each is on disk when its call is answered. Nothing was committed after the last one."""
    hosts = [f"{name}.example" for name in ("free", "blocked", "slow", "full", "paused")]
    soon = int(time.time()) + 3600
    with serving(tmp_path / "job") as served:
        stub = served.stub
        for host in hosts:
            assert served.put(*(discovered(f"http://{host}/{at}") for at in range(3))) == [0] * 3
        assert served.put(known("http://full.example/0")) == [ACK.OK]
        stub.BlockQueueUntil(pb.BlockQueueParams(key="blocked.example", time=soon))
        stub.SetDelay(pb.QueueDelayParams(key="slow.example", delay_requestable=3000))
        stub.SetCrawlLimit(pb.CrawlLimitParams(key="full.example", limit=1))
        stub.SetActive(pb.Active(state=False))
        served.kill()
    with serving(tmp_path / "job") as served:
        stub = served.stub
        assert not stub.GetActive(pb.Local()).state
        assert served.urls() == []
        stub.SetActive(pb.Active(state=True))
        served.kill()
    with serving(tmp_path / "job") as served:
        stub = served.stub
        assert stub.GetActive(pb.Local()).state
        found: set[str] = set()
        wait_until(lambda: bool(found.update(served.urls()) or len(found) == 6))
        time.sleep(2)
        found.update(served.urls())
        assert {url.split("/")[2] for url in found} == {"free.example", "paused.example"}
        # The ends of orders too.
        stub.BlockQueueUntil(pb.BlockQueueParams(key="blocked.example", time=0))
        stub.SetCrawlLimit(pb.CrawlLimitParams(key="full.example", limit=0))
        served.kill()
    with serving(tmp_path / "job") as served:
        wait_until(lambda: bool(found.update(served.urls()) or len(found) == 11))


def test_a_port_that_is_taken_is_refused(jobless: Served, tmp_path: Path):
    address = f"127.0.0.1:{jobless.port}"
    done = warm.run(
        [sys.executable, "-m", "scrapy", "frontier", str(tmp_path / "job"), "--serve", address]
    )
    assert done.returncode == 2
    assert done.stderr.decode().startswith(f"krowlspider: --serve {address} cannot be listened at")


def test_two_clients_never_get_a_host_at_a_time(tmp_path: Path):
    """As in GetURLsReservationTest, with clients that ask at the same moment."""
    with serving(tmp_path / "job") as served:
        served.put(*(discovered(f"http://one.example/{number}") for number in range(50)))
        asked = pb.GetParams(crawlID="DEFAULT", key="one.example", max_urls_per_queue=1)
        calls = [served.stub.GetURLs(asked, timeout=DEADLINE) for _ in range(10)]
        assert sum(len(list(call)) for call in calls) == 1


def test_a_crawl_by_scrapy_goes_on_with_what_is_left(tmp_path: Path):
    """The queue of a folder that was served is in `scrapy frontier`'s own words afterwards."""
    with serving(tmp_path / "job") as served:
        served.put(discovered("http://a.example/1"), discovered("http://a.example/2"))
        wait_until(lambda: served.urls(max_urls_per_queue=1) == ["http://a.example/1"])
        served.put(known("http://a.example/1"))
    done = warm.run([sys.executable, "-m", "scrapy", "frontier", str(tmp_path / "job"), "--export"])
    assert b"http://a.example/2" in done.stdout
    assert b"http://a.example/1" not in done.stdout
