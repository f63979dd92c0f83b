"""``scrapy node`` with real processes that die.

`tests.project.test_operators_path` stops them, and starts them in other numbers.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import quote

import pytest

from tests.cluster.judges import not_archived, repeated
from tests.extensions.test_live_line import screen, terminal
from tests.mockweb import MockWeb
from tests.mockweb.graph import Graph
from tests.mockweb.oracle import reachable
from tests.support import warm
from tests.support.crawling import Crawl, frontier_view, scrapy, write_seeds
from tests.support.crawls import QUICK, anchors, impolite, page, pages
from tests.support.debian import program

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DELAY = 0.2
# Seconds in which a pause is obeyed, and in which nothing may come then.
PAUSED = 5.0
READ_AGAIN = "SIGHUP received: reading KROWL_POLICIES again"
GRAPH = Graph(hosts=24, pages=10, seed=3, features=QUICK)


class NodeCrawl(Crawl):
    """One run of ``scrapy node`` with ``processes`` processes."""

    processes = 2
    _written: list[bytes] | None = None

    def words(self) -> list[str]:
        return ["node", "--processes", str(self.processes), *super().words()[1:]]

    @property
    def folders(self) -> list[Path]:
        return sorted(self.jobdir.glob("p*"))

    def pid(self, process: str) -> int:
        return int((self.jobdir / process / "lock").read_text())

    @property
    def children(self) -> list[str]:
        pid = self.process.pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

    @property
    def redis(self) -> int:
        """The process of its private Redis."""
        (found,) = (
            int(each) for each in self.children if "redis" in Path(f"/proc/{each}/comm").read_text()
        )
        return found

    @property
    def ends(self) -> list[str]:
        """How each summary of the log says that the crawl has ended."""
        return re.findall(r"Crawl of .* ended \((\w+)\)", self.log)

    def metrics(self) -> dict[str, float]:
        """The metrics of all processes, by series."""
        (url,) = re.findall(r'metrics of all: (http[^\s"]+)', self.log)
        with urllib.request.urlopen(url) as answer:
            lines = answer.read().decode().splitlines()
        series = (line.rpartition(" ") for line in lines if line[0] != "#")
        return {name: float(value) for name, _, value in series}

    def start_on(self, stream: TextIO, written: list[bytes]) -> NodeCrawl:
        """Start it on a terminal, which has the log."""
        environment = {**os.environ, "TERM": "xterm", "STATS_FILE": str(self.stats_path)}
        self._written = written
        self.process = warm.start(self.command(), environment=environment, stderr=stream)
        return self

    @property
    def log(self) -> str:
        """The log, as the terminal shows it if there is one, without the live line."""
        return super().log if self._written is None else "\n".join(screen(self._written)[:-1])

    @property
    def pages_shown(self) -> list[int]:
        """The number of pages in each drawing of the live line."""
        text = b"".join(self._written or ()).decode(errors="replace")
        drawn = re.findall(r"\r\x1b\[2K([0-9]+) pages?, 2 processes \| [0-9.]+ pages/s", text)
        return list(map(int, drawn))


def node_crawl(
    web: MockWeb, folder: Path, processes: int, seeds: Sequence[str] = (), **settings: object
) -> NodeCrawl:
    # It is where the command looks for it.
    program("redis-server")
    crawl = NodeCrawl(
        folder / "job",
        arguments={"seeds": write_seeds(folder / "seeds.txt", seeds or web.seeds())},
        settings={"KROWL_DELAY_MIN": DELAY, **settings},
    )
    crawl.processes = processes
    return crawl


def crawl_until(web: MockWeb, crawl: NodeCrawl, more: int) -> None:
    """Wait until the web was asked so many times more."""
    goal = len(web.log()) + more
    crawl.wait_until(lambda: len(web.log()) > goal)


def test_dead_processes_lose_nothing(tmp_path: Path) -> None:
    """A process and the Redis die: they are started again. The supervisor dies: its processes end,
    and the next start goes on with what they left, by another number of processes.

    The first start is on a terminal, with one live line below the whole lines of all processes."""
    more = {"KROWL_LOG_FORMAT": "json", "LOG_LEVEL": "INFO"}
    with MockWeb(graph=GRAPH) as web, terminal(300) as (stream, written):
        crawl = node_crawl(web, tmp_path, 2, **more).start_on(stream, written)
        crawl_until(web, crawl, 50)
        # Counters are sums, and each process has its gauges.
        up = [f'krowl_node_process_up{{process="{name}"}}' for name in ("p1", "p2")]
        crawl.wait_until(lambda: all(crawl.metrics()[each] for each in up))
        metrics = crawl.metrics()
        before = metrics["krowl_frontier_done_total"]
        assert metrics['krowl_fetch_seconds_bucket{le="+Inf"}'] > 0
        joined = {name: metrics[name] for name in metrics if "krowl_cluster_joined{" in name}
        assert set(joined.values()) == {1}
        assert len(joined) == 2
        os.kill(crawl.pid("p1"), signal.SIGKILL)
        os.kill(crawl.redis, signal.SIGKILL)
        for name in ("p1", "redis"):
            said = f"Process {name} has died with signal SIGKILL: starting it again"
            crawl.wait_until(lambda said=said: said in crawl.log)  # type: ignore[misc]
        crawl_until(web, crawl, 50)
        crawl.wait_until(lambda: crawl.metrics()[up[0]] == 1)
        crawl.wait_until(lambda: crawl.metrics()["krowl_frontier_done_total"] > before)
        crawl.wait_until(lambda: len(set(crawl.pages_shown)) > 2)
        # It leaves an open WARC file to a folder that no process will use.
        os.kill(crawl.pid("p2"), signal.SIGKILL)
        crawl.kill()
        lines = [json.loads(line) for line in crawl.log.splitlines()]
        folders = {None: crawl.jobdir, **{path.name: path for path in crawl.folders}}
        found = {(line.get("node"), line["job"], line["spider"]) for line in lines}
        assert found == {(node, str(path), "broad") for node, path in folders.items()}
        sockets = (crawl.jobdir / "redis" / "sockets").readlink()
        assert sockets.exists()
        earlier = len(pages(web.log()))
        crawl = node_crawl(web, tmp_path, 1).run()
        assert crawl.ends == ["finished"]
        # Those of the start that was killed are not of this one.
        (done,) = re.findall(r"pages done +([0-9]+)", crawl.log)
        assert int(done) <= len(pages(web.log())) - earlier
        assert not sockets.exists()
        entries = web.log()
        assert reachable(web.graph, web.seeds()).differences(entries, at_least=True) == []
        # In flight or not committed at three ends: 24 hosts, a request each, and what a commit
        # interval brings.
        assert len(repeated(entries)) <= 3 * 2 * GRAPH.hosts
        assert impolite(web, DELAY) == []
        assert [frontier_view(folder)["queued"] for folder in crawl.folders] == [0, 0]
        assert not_archived(entries, crawl.folders, exactly=False) == []
        # Each process has a feed of its own, in each start.
        feeds = {path.stem.rpartition("-")[2] for path in tmp_path.glob("job-*-p[12].jsonl")}
        assert feeds == {"p1", "p2"}


def test_frozen_redis_does_not_hold_up_an_operator(tmp_path: Path) -> None:
    """The first signal ends the processes, and the second one the Redis too."""
    with MockWeb(graph=GRAPH) as web:
        crawl = node_crawl(web, tmp_path, 2).start()
        crawl_until(web, crawl, 30)
        redis = crawl.redis
        os.kill(redis, signal.SIGSTOP)
        crawl.process.send_signal(signal.SIGINT)
        crawl.wait_until(lambda: crawl.ends == ["stopped"])
        crawl.interrupt()
        assert not Path(f"/proc/{redis}").exists()


def order(folder: Path, name: str, /, **fields: object) -> str:
    """Give an order at the page of a process, or of all; return what it says."""
    request = urllib.request.Request(
        (folder / "live-page").read_text().strip() + f"/api/v1/{name}",
        json.dumps(fields).encode(),
        {
            "Authorization": f"Bearer {(folder / 'control-token').read_text().strip()}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request) as answer:
        found: str = json.load(answer)["message"]
        return found


def ask(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_pause_at_one_process_holds_for_all(tmp_path: Path) -> None:
    """Status, readiness and status line of all say so; the page of all ends it. Orders that are of
    one process alone are given to each."""
    with MockWeb(graph=GRAPH) as web:
        more = {"PROMETHEUS_PORT": 0, "KROWL_CONTROL_MCP": 1}
        crawl = node_crawl(web, tmp_path, 2, KROWL_DELAY_MIN=1, **more).start()
        crawl_until(web, crawl, 40)
        (page,) = re.findall(r"page of all: (http\S+/);", crawl.log)
        assert ask(f"{page}readyz") == (200, "ready\n")
        assert order(crawl.folders[0], "pause").startswith("paused at all nodes")
        crawl.wait_until(lambda: ask(f"{page}readyz")[0] == 503)
        time.sleep(PAUSED)
        before = len(web.log())
        time.sleep(PAUSED)
        assert len(web.log()) == before
        why = "paused by a person at all nodes"
        assert why in ask(f"{page}readyz")[1]
        assert why in json.loads(ask(f"{page}api/v1/status")[1])["paused"]
        assert why in crawl.log
        assert order(crawl.jobdir, "resume").startswith("it goes on at all nodes")
        said = order(crawl.jobdir, "set", name="CONCURRENT_REQUESTS", value="10")
        assert said == "CONCURRENT_REQUESTS=5 until the process ends, at each of 2 processes"
        with pytest.raises(urllib.error.HTTPError, match="409"):
            order(crawl.jobdir, "set", name="max_pages", value="10")
        crawl_until(web, crawl, 40)
        assert_a_bad_file_is_refused_as_by_one(crawl)
        assert_tools_are_of_all(crawl)
        assert_all_are_asked_together(crawl, web.seeds()[0])
        crawl.interrupt()
    assert_all_are_read_together(crawl, web.seeds()[0])


def test_sighup_reads_the_sheets_of_all_processes_again(tmp_path: Path) -> None:
    """It does not stop the crawl."""
    sheets = tmp_path / "policies.toml"
    sheets.write_text('[[sheet]]\nname = "a"\nmatch = ["a.test"]\ndepth = 1\n')
    with MockWeb(graph=GRAPH) as web:
        more = {"PROMETHEUS_PORT": 0, "KROWL_POLICIES": sheets, "LOG_LEVEL": "INFO"}
        crawl = node_crawl(web, tmp_path, 2, KROWL_DELAY_MIN=2, **more)
        # A process that gets it while it starts would die of it: Redis and both have just begun.
        crawl.start().wait_until(lambda: len(crawl.children) == 3)
        crawl.process.send_signal(signal.SIGHUP)
        crawl.wait_until(lambda: crawl.log.count(READ_AGAIN) == 2)
        crawl_until(web, crawl, 20)
        crawl.wait_until(lambda: crawl.log.count("policies.toml in force") == 2)
        crawl.process.send_signal(signal.SIGHUP)
        crawl.wait_until(lambda: crawl.log.count(READ_AGAIN) == 4)
        crawl.wait_until(lambda: crawl.log.count("policies.toml in force") == 4)
        crawl_until(web, crawl, 20)
        assert "has died" not in crawl.log
        state = json.loads(ask(f"{page_of(crawl.jobdir)}/api/v1/status")[1])["policies"]
        assert re.fullmatch("1 sheet, [0-9a-f]{12} in force", state)
        said = order(crawl.jobdir, "reload")
        assert said.endswith("the log says what is found, at each of 2 processes")
        crawl.interrupt()
    assert crawl.ends == ["stopped"]


def test_sighup_without_sheets_stops_all_processes(tmp_path: Path) -> None:
    with MockWeb(graph=GRAPH) as web:
        crawl = node_crawl(web, tmp_path, 2).start()
        crawl_until(web, crawl, 20)
        crawl.process.send_signal(signal.SIGHUP)
        crawl.wait()
    assert "SIGHUP received: the terminal or the session has ended" in crawl.log
    assert crawl.ends == ["stopped"]


def assert_a_bad_file_is_refused_as_by_one(crawl: NodeCrawl) -> None:
    """Also if the process answers before the end of the file."""
    for body, headers, code in (
        (gzip.compress(os.urandom(5_000_000)), {}, 400),
        (b"a.test", {"Content-Encoding": "gzip"}, 415),
        (b"a.test", {"Authorization": "Bearer x"}, 401),
    ):
        token = (crawl.jobdir / "control-token").read_text().strip()
        request = urllib.request.Request(
            f"{page_of(crawl.jobdir)}/api/v1/import",
            body,
            {"Authorization": f"Bearer {token}", **headers},
        )
        with pytest.raises(urllib.error.HTTPError, match=str(code)):
            urllib.request.urlopen(request)


def assert_tools_are_of_all(crawl: NodeCrawl) -> None:
    """The tools of the common page answer as its API does, and steer all processes."""

    def call(name: str, **fields: object) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        body |= {"params": {"name": name, "arguments": fields}}
        token = (crawl.jobdir / "control-token").read_text().strip()
        request = urllib.request.Request(
            f"{page_of(crawl.jobdir)}/mcp",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {token}"},
        )
        with urllib.request.urlopen(request) as answer:
            result = json.loads(answer.read())["result"]
        assert not result["isError"], result
        return json.loads(result["content"][0]["text"])

    assert call("status")["folder"] == str(crawl.jobdir)
    assert [node["node"] for node in call("nodes")] == ["p1", "p2"]
    assert len(call("hosts", limit=3)) == 3
    assert call("pause")["message"].startswith("paused at all nodes")
    crawl.wait_until(lambda: "at all nodes" in call("status")["paused"])
    assert call("resume")["message"].startswith("it goes on at all nodes")


def assert_all_are_asked_together(crawl: NodeCrawl, url: str) -> None:
    """While they run: any process explains a URL of any other one, or has it queued."""
    said = frontier(crawl, "--json")["running"]
    assert list(said) == ["total", "p1", "p2"]
    assert said["total"]["done"] == said["p1"]["done"] + said["p2"]["done"]
    for each in crawl.folders:
        assert f"{each} is being crawled; its last status line" in text_of(crawl, "frontier")
    assert frontier(crawl, "--json", "--explain", url)["state"] == "fetched"
    lines = crawl.jobdir.with_name("more.txt")
    lines.write_text(f"{url}\n" + "".join(f"{url}new{number}\n" for number in range(3)))
    given = frontier(crawl, "--json", "--import", str(lines))
    nodes = json.loads(ask(f"{page_of(crawl.jobdir)}/api/v1/nodes")[1])
    assert [node["page"] for node in nodes] == [page_of(folder) for folder in crawl.folders]
    assert given["imported"] + given["sent"] + given["known"] == 4
    refused = scrapy("frontier", crawl.jobdir, "--snapshot", "x", code=2).stderr.decode()
    assert "stop the crawl, and copy the whole folder" in refused
    top = text_of(crawl, "top", "--once")
    assert f", in {crawl.jobdir}" in top.splitlines()[0]
    assert_figures_are_sums(crawl)
    # How fresh the pages stay, asked of the page of all and by the command.
    status, text = ask(f"{page_of(crawl.jobdir)}/api/v1/forecast?target=50%25%203h")
    assert status == 200
    assert json.loads(text)["age"] == 3 * 3600
    said = frontier(crawl, "--json", "--forecast", "50% 3h")
    assert list(said) == ["total", "p1", "p2"]
    for found in (json.loads(text), said["total"]):
        for name in ("pages", "hosts"):
            assert found["whole"][name] == said["p1"]["whole"][name] + said["p2"]["whole"][name]
    # The captures of both processes, one with the URL.
    [captured] = ask(f"{page_of(crawl.jobdir)}/cdx?url={quote(url)}")[1].splitlines()
    names = {file.name for each in crawl.folders for file in (each / "warc").iterdir()}
    assert json.loads(captured[captured.index("{") :])["filename"] in names
    assert ask(f"{page_of(crawl.jobdir)}/api/v1/forecast?target=x")[0] == 400
    assert ask(f"{page_of(crawl.jobdir)}/api/v1/forecast") == (200, "null")


def assert_figures_are_sums(crawl: NodeCrawl) -> None:
    """Of the hosts, which all are known by now."""
    found = []
    for folder in (crawl.jobdir, *crawl.folders):
        shown = text_of(crawl, "top", "--once", folder=folder)
        found += map(int, re.findall(r"queued on ([0-9]+) hosts?,", shown))
        each = json.loads(ask(f"{page_of(folder)}/api/v1/hosts?limit=200")[1])
        assert len(each) == found[-1]
    assert found[0] == sum(found[1:])


def page_of(folder: Path) -> str:
    return (folder / "live-page").read_text().strip()


def assert_all_are_read_together(crawl: NodeCrawl, url: str) -> None:
    """After the end: sums, and what any process knows."""
    views = [frontier_view(folder) for folder in crawl.folders]
    whole = frontier(crawl, "--json")
    for name in ("hosts", "queued", "done"):
        assert whole[name] == sum(view[name] for view in views) > 0
    assert frontier(crawl, "--json", "--explain", url)["state"] == "fetched"
    exported = text_of(crawl, "frontier", "--export")
    assert len(exported.splitlines()) == whole["queued"]
    name = json.loads(exported.splitlines()[0])["url"].split("/")[2]
    assert frontier(crawl, "--json", "--host", name)["queued"] > 0
    dropped = frontier(crawl, "--json", "--drop-host", name)["dropped"]
    assert dropped > 0
    assert frontier(crawl, "--json")["queued"] == whole["queued"] - dropped
    refused = scrapy("frontier", crawl.jobdir, "--import", "-", code=2).stderr.decode()
    assert "import while the crawl runs" in refused


def text_of(crawl: NodeCrawl, *words: str, folder: Path | None = None) -> str:
    name, *options = words
    return scrapy(name, folder or crawl.jobdir, *options).stdout.decode()


def frontier(crawl: NodeCrawl, *options: str) -> Any:
    return json.loads(text_of(crawl, "frontier", *options))


def test_each_seed_line_has_one_row_for_all_processes(tmp_path: Path) -> None:
    """With where it ended, at whatever process; and each seed is fetched before a link."""
    links = anchors(*(f"/p{number}" for number in range(10)))
    moved = [
        {"host": f"^site{n}.test", "path": "/", "redirect": f"http://to{n}.test:{{port}}/home"}
        for n in range(0, 40, 4)
    ]
    spec = [
        page("/robots.txt", "", status=404),
        *moved,
        {"host": "^site5.test", **page("/", "", status=404)},
        page("/", links),
        page("/home", links),
        page("^/p", "leaf"),
    ]
    with MockWeb(spec=spec) as web:
        lines = [web.url(f"site{number}.test") for number in range(40)]
        crawl = node_crawl(web, tmp_path, 3, [*lines, "# a comment", "no seed"])
        crawl.arguments = {**crawl.arguments, "max_pages": "42"}
        crawl.run()
        assert crawl.ends == ["max_pages"]
        asked = [entry.path for entry in pages(web.log())]
        port = web.port
    rows = seed_rows(crawl)
    assert [row[1] for row in rows] == [*lines, "no seed"]
    ends = ["limited: max_pages of the crawl"] * 40 + ["invalid: whitespace inside"]
    ends[5] = "failed: status 404"
    assert [row[2] for row in rows] == ends
    assert [row[3] for row in rows].count("404") == 1
    ends = [row[4] for row in rows if row[4]]
    assert ends == [f"http://to{number}.test:{port}/home" for number in range(0, 40, 4)]
    # Two pages more than seeds: those alone are links.
    assert sum(path.startswith("/p") for path in asked) <= 2
    assert (asked.count("/"), asked.count("/home")) == (40, 10)


def seed_rows(crawl: NodeCrawl) -> list[list[str]]:
    table = (crawl.jobdir / "reports" / "seeds.tsv").read_text().splitlines()
    return [row.split("\t") for row in table[1:]]


def imported(lines: Path, folder: Path) -> Any:
    """Have the process of a folder take a file; return what became of its lines."""
    return json.loads(scrapy("frontier", folder, "--json", "--import", str(lines)).stdout)


def test_rows_of_seeds_survive_another_number_of_processes(tmp_path: Path) -> None:
    """Two processes, killed; three; and one. Also those of lines that were imported meanwhile, to
    a process that is no more, and of what they redirect to."""
    moved = [
        {"host": f"^more{n}.test", "path": "/", "redirect": f"http://to{n}.test:{{port}}/"}
        for n in range(0, 20, 2)
    ]
    spec = [
        page("/robots.txt", "", status=404),
        *moved,
        page("/", anchors(*(f"/p{number}" for number in range(8)))),
        page("^/p", "leaf"),
    ]
    with MockWeb(spec=spec) as web:
        seeds = [web.url(f"site{number}.test") for number in range(30)]
        more = [web.url(f"more{number}.test") for number in range(20)]
        again = [web.url(f"site{number}.test") + "p1" for number in range(30, 40)]
        settings = {"KROWL_DELAY_MIN": 1.0}
        crawl = node_crawl(web, tmp_path, 2, seeds, **settings).start()
        crawl_until(web, crawl, 60)
        lines = tmp_path / "more.txt"
        lines.write_text("\n".join(more))
        given = imported(lines, crawl.folders[1])
        assert given["imported"] + given["sent"] == 20
        assert given["sent"] > 0
        crawl_until(web, crawl, 30)
        crawl.kill()
        crawl = node_crawl(web, tmp_path, 3, seeds, **settings).start()
        crawl_until(web, crawl, 60)
        lines.write_text("\n".join(again))
        imported(lines, crawl.folders[2])
        crawl.interrupt()
        assert sorted(row[1] for row in seed_rows(crawl)) == sorted([*seeds, *more, *again])
        assert {row[2] for row in seed_rows(crawl)} <= {"done", "queued"}
        crawl = node_crawl(web, tmp_path, 1, seeds, **settings).start()
        # It is started again, and hands over the rest.
        crawl.wait_until(lambda: "p2, p3 stopping" in crawl.log)
        os.kill(crawl.pid("p3"), signal.SIGKILL)
        crawl.wait()
        assert "Process p3 has died with signal SIGKILL: starting it again" in crawl.log
        assert crawl.ends == ["finished"]
        rows, port = seed_rows(crawl), web.port
    assert sorted(row[1] for row in rows) == sorted([*seeds, *more, *again])
    assert {(row[2], row[3]) for row in rows} == {("done", "200")}
    targets = {row[4] for row in rows if row[4]}
    assert targets == {f"http://to{number}.test:{port}/" for number in range(0, 20, 2)}


def test_a_submission_reaches_the_process_that_owns_its_host(tmp_path: Path) -> None:
    """Of IndexNow, given to the page of all."""
    on = {"KROWL_RECRAWL": "continuous", "KROWL_INDEXNOW": 1}
    key = "0123456789abcdef"
    with MockWeb(graph=GRAPH) as web:
        crawl = node_crawl(web, tmp_path, 2, **on).start()
        crawl_until(web, crawl, 60)

        def give(page: str, url: str) -> int:
            given = {"host": url.split("/")[2], "key": key, "urlList": [url]}
            return posted(f"{page}/indexnow", json.dumps(given).encode())

        for url in web.seeds()[:6]:
            statuses = sorted(give(page_of(folder), url) for folder in crawl.folders)
            assert statuses == [202, 421]
            assert give(page_of(crawl.jobdir), url) in (202, 403)
        assert give(page_of(crawl.jobdir), "http://unknown.test/") in (421, 422)
        crawl.interrupt()
        files = {each.host for each in web.log() if each.path == f"/{key}.txt"}
    assert files <= {url.split("/")[2] for url in web.seeds()[:6]}


def posted(url: str, body: bytes) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body)) as answer:
            status: int = answer.status
    except urllib.error.HTTPError as error:
        with error:
            status = error.code
    return status


def question(crawl: NodeCrawl, what: str) -> Any:
    """Ask the API of all processes."""
    status, text = ask((crawl.jobdir / "live-page").read_text().strip() + f"/api/v1/{what}")
    return json.loads(text) if status == 200 else None


def live_tags(crawl: NodeCrawl) -> dict[str, dict[str, int]]:
    """The counts of each tag that are not 0; nothing while a process is not ready."""
    if not (crawl.jobdir / "live-page").exists():
        return {}
    tags = (question(crawl, "seeds?limit=0") or {"tags": []})["tags"]
    names = ("seeds", "done", "limited", "failed", "waiting", "other", "pages", "invalid")
    return {row["tag"]: {name: row[name] for name in names if row[name]} for row in tags}


@pytest.mark.slow
def test_seeds_keep_their_words_at_all_processes(tmp_path: Path) -> None:
    """Depth and tag go with what is found on a domain of another process. Each counts its own
    pages, and the tables have the sums. A crawl stops once all seeds are over, at whatever
    process."""
    far = [f"far{n}.test" for n in range(8)]
    spec = [
        page("/robots.txt", "", status=404),
        page("/", anchors(*(f"http://{name}:{{port}}/1" for name in far))),
        page("^/1$", anchors("/2")),
        page("^/2$", anchors("/3")),
        page("^/3$", "too deep"),
        page("/4", "", status=404),
        page("/slow", "x", latency=15),
    ]
    with MockWeb(spec=spec) as web:
        lines = [
            f'{web.url("wide.test")}\t{{"tag": "wide", "depth": 2}}',
            f'{web.url("near.test")}\t{{"tag": "near", "depth": 0}}',
            *(f'{web.url(f"{n}.test", "/4")}\t{{"tag": "none"}}' for n in range(6)),
            "no seed",
        ]
        slow = web.url("slow.test", "/slow")
        crawl = node_crawl(web, tmp_path, 2, [*lines, f'{slow}\t{{"tag": "slow"}}'])
        crawl.start()
        # Before the slow one ends.
        crawl.wait_until(
            lambda: (
                live_tags(crawl)
                == {
                    "": {"seeds": 1, "failed": 1, "invalid": 1},
                    "near": {"seeds": 1, "limited": 1, "pages": 1},
                    "none": {"seeds": 6, "failed": 6, "pages": 6},
                    "slow": {"seeds": 1, "waiting": 1},
                    "wide": {"seeds": 1, "limited": 1, "pages": 17},
                }
            )
        )
        row = question(crawl, "seeds?tag=wide")["seeds"][0]
        assert (row["outcome"], row["pages"]) == ("limited: depth", 17)
        crawl.wait()
        assert crawl.ends == ["finished"]
        asked = sorted((entry.host.partition(":")[0], entry.path) for entry in pages(web.log()))
        more = tmp_path / "more.txt"
        more.write_text("\n".join(web.url(f"late{n}.test", "/3") for n in range(12)))
        crawl.arguments = {"seeds": more, "until": "seeds"}
        crawl.run()
        assert crawl.ends == ["finished"]
    assert asked == sorted(
        [
            *(("wide.test", "/"), ("near.test", "/"), ("slow.test", "/slow")),
            *((f"{n}.test", "/4") for n in range(6)),
            *((name, f"/{n}") for name in far for n in (1, 2)),
        ]
    )
    reports = crawl.jobdir / "reports"
    names, *rows = (row.split("\t") for row in (reports / "seeds.tsv").read_text().splitlines())
    found = [dict(zip(names, row, strict=True)) for row in rows]
    assert [(row["outcome"], row["tag"], row["pages"]) for row in found[:2]] == [
        ("limited: depth", "wide", "17"),
        ("limited: depth", "near", "1"),
    ]
    ends = Counter(row["outcome"] for row in found[2:])
    assert ends == {"done": 13, "failed: status 404": 6, "invalid: whitespace inside": 1}
    names, *rows = (row.split("\t") for row in (reports / "tags.tsv").read_text().splitlines())
    assert {row[0]: row[names.index("pages")] for row in rows if row[0]} == {
        "wide": "17",
        "near": "1",
        "none": "6",
        "slow": "1",
    }
    # What was found from the wide seed is at both processes.
    shown = [text_of(crawl, "frontier", "--pages", folder=each) for each in crawl.folders]
    stored = [[json.loads(line) for line in text.splitlines()] for text in shown]
    assert [{row.get("tag") for row in some} >= {"wide"} for some in stored] == [True, True]


def test_a_limit_of_a_sheet_is_of_all_processes(tmp_path: Path) -> None:
    """One of them is killed meanwhile, and then all: pages that were not committed count once."""
    hosts = [f"site{number}.test" for number in range(8)]
    sheets = tmp_path / "policies.toml"
    sheets.write_text(
        f'[[sheet]]\nname = "few"\nmatch = {hosts}\nmax_pages = 20\nquota = "sheet"\n'
    )
    many = anchors(*(f"/p{number}" for number in range(10)))
    with MockWeb(
        spec=[page("/robots.txt", "", status=404), page("/", many), page("^/p", "x")]
    ) as web:

        def asked() -> set[str]:
            return {entry.url for entry in pages(web.log())}

        seeds = [web.url(host) for host in hosts]
        crawl = node_crawl(web, tmp_path, 2, seeds, KROWL_POLICIES=sheets).start()
        crawl.wait_until(lambda: len(asked()) >= 5)
        os.kill(crawl.pid("p1"), signal.SIGKILL)
        crawl.wait_until(lambda: len(asked()) >= 12)
        crawl.kill()
        last = node_crawl(web, tmp_path, 2, seeds, KROWL_POLICIES=sheets).run()
        done = asked()
    assert last.ends == ["finished"]
    # Each of the three killed processes may lose the grant that the register was giving it, and a
    # page that was in flight may not have been asked for again.
    assert 17 <= sum(frontier_view(folder)["done"] for folder in last.folders) <= 20
    assert 17 <= len(done) <= 24
