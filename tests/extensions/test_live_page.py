"""The live page, its API and the telnet console of a real crawl."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from gzip import compress
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import quote

import pytest
from scrapy.exceptions import NotConfigured
from scrapy.utils.test import get_crawler

from krowlspider.extensions.live_page import FIELDS, KEPT, History, LivePage
from krowlspider.job.monitoring.access import CONTROL_TOKEN
from krowlspider.views.live_page import routes
from tests.mockweb import MockWeb
from tests.search.indexes import Page, index
from tests.support.crawling import CONTACT, Crawl, write_seeds
from tests.support.crawls import anchors, page

if TYPE_CHECKING:
    from collections.abc import Iterator

SPEC = [
    page("/robots.txt", "User-agent: *\nDisallow: /secret\n"),
    page("/", anchors(*(f"/{at}" for at in range(50)), "/secret")),
    page("^/[0-9]+$", "x"),
]


@contextmanager
def crawling(folder: Path, **more: object) -> Iterator[SimpleNamespace]:
    """A crawl under way, with its web, the address of its page and its telnet console."""
    with MockWeb(spec=SPEC) as web:
        seeds = write_seeds(folder / "seeds.txt", [web.url("a.test")])
        settings = {
            "PROMETHEUS_ENABLED": 1,
            "PROMETHEUS_PORT": 0,
            "TELNETCONSOLE_ENABLED": 1,
            "KROWL_DELAY_MIN": 2,
            **more,
        }
        run = Crawl(folder / "job", arguments={"seeds": seeds}, settings=settings)
        run.start()
        watch = awaited(run, r"page (http://127.0.0.1:\d+)/; .*telnet 127.0.0.1 (\d+)")
        while not any(entry.path == "/0" for entry in web.log()):
            time.sleep(0.05)
        yield SimpleNamespace(
            web=web, url=watch[1], telnet=int(watch[2]), jobdir=run.jobdir, end=run.interrupt
        )
        run.interrupt()


def awaited(run: Crawl, pattern: str) -> re.Match[str]:
    """Return the first match in the log, once it is there."""
    end = time.monotonic() + 30
    while (found := re.search(pattern, run.log_path.read_text())) is None:
        assert time.monotonic() < end, run.log_path.read_text()
        time.sleep(0.05)
    return found


def ask(
    crawl: SimpleNamespace, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, Any, bytes]:
    request = urllib.request.Request(crawl.url + path, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers, answer.read()
    except HTTPError as error:
        return error.code, error.headers, error.read()


def api(crawl: SimpleNamespace, path: str, status: int = 200) -> Any:
    code, _, body = ask(crawl, f"/api/v1/{path}")
    assert code == status, body
    return json.loads(body)


def check_the_api(crawl: SimpleNamespace) -> None:
    own = crawl.web.url("a.test")
    status = api(crawl, "status")
    assert (status["spider"], status["folder"]) == ("broad", str(crawl.jobdir))
    assert status["hosts"] == 1
    assert 40 < status["queued"] <= 50
    assert status["fetched"] == {"page": status["done"], "robots": 1}
    (host,) = api(crawl, "hosts?sort=queued&limit=5")
    # It moves between these states while the crawl runs.
    asked = [f"hosts?state={state}" for state in ("scheduled", "in%20flight")] * 5
    assert {each["host"] for one in asked for each in api(crawl, one)} == {host["host"]}
    assert api(crawl, "hosts?state=idle") == []
    assert own == f"http://{host['host']}/"
    view = api(crawl, f"host?name={quote(own)}")
    assert view["robots"][0]["status"] == 200
    assert view["why"].startswith(("It is due in", "A request to it"))
    found = api(crawl, f"explain?url={quote(own)}secret")
    assert (found["state"], found["setting"]) == ("queued", "ROBOTSTXT_OBEY")
    assert found["robots"] == "line 2: Disallow: /secret"
    # No page comes back by the schedule.
    assert api(crawl, "forecast") is None
    assert api(crawl, "forecast?target=90%25%201d")["whole"]["pages"] >= 1
    seeds = api(crawl, "seeds")
    assert (seeds["total"], [row["seed"] for row in seeds["seeds"]]) == (1, [own])
    assert api(crawl, "seeds?limit=0") == {"total": 0, "seeds": [], "tags": []}
    assert api(crawl, "history")["fields"] == list(FIELDS)
    (page,) = [row for row in api(crawl, "pages") if row["url"] == own]
    assert (page["outcome"], page["status"]) == ("done", 200)
    assert page["size"] > 900
    assert 0 < page["latency"] < 5


def check_bad_questions(crawl: SimpleNamespace) -> None:
    assert "no host 'x.test'" in api(crawl, "host?name=x.test", 404)["error"]
    assert "needs ?url=" in api(crawl, "explain", 400)["error"]
    assert "one of the states idle" in api(crawl, "hosts?state=lost", 400)["error"]
    assert "sorted by one of queued" in api(crawl, "hosts?sort=names", 400)["error"]
    for limit in ("0", "-1", "201", "x", "9" * 5000):
        assert "give 1 to 200" in api(crawl, f"hosts?limit={limit}", 400)["error"]
    assert "give 1 to 999" in api(crawl, "seeds?limit=1000", 400)["error"]
    assert "'90' is no target" in api(crawl, "forecast?target=90", 400)["error"]
    assert "no snapshot is being taken" in api(crawl, "snapshot?folder=/none", 400)["error"]
    assert "give 1 to 100" in api(crawl, "pages?limit=101", 400)["error"]
    assert api(crawl, "explain?url=ftp://x/")["state"] == "invalid"
    assert ask(crawl, "/api/v1/nothing")[0] == 404


def check_that_other_sites_cannot_read_it(crawl: SimpleNamespace) -> None:
    code, headers, body = ask(crawl, "/")
    assert code == 200
    assert b"Why is this URL not fetched?" in body
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Access-Control-Allow-Origin"] is None
    assert not re.search(rb"https?://(?!example\.org)", body)
    for name in ("live.js", "live.css"):
        assert ask(crawl, f"/{name}")[0] == 200
    assert ask(crawl, "/api/v1/status", Host="rebound.example:9410")[0] == 421
    assert ask(crawl, "/", Host="localhost")[0] == 200
    for path in ("/metrics", "/healthz", "/readyz"):
        assert ask(crawl, path, Host="prometheus.example")[0] == 421
        assert ask(crawl, path, Host="localhost")[0] == 200


def check_the_captures(crawl: SimpleNamespace) -> None:
    """The CDX server of a running crawl knows the file that is being written, as that is named."""
    [file] = [path.name for path in (crawl.jobdir / "warc").glob("*.warc.gz.open")]
    url = quote(crawl.web.url("a.test"))
    code, headers, body = ask(crawl, f"/cdx?url={url}")
    assert (code, headers["Content-Type"]) == (200, "text/x-cdxj; charset=utf-8")
    line = body.decode().partition("{")
    assert json.loads(line[1] + line[2])["filename"] == file
    assert headers["Access-Control-Allow-Origin"] is None
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert json.loads(ask(crawl, f"/outbackcdx?url={url}&output=json")[2])[1][-1] == file
    code, headers, body = ask(crawl, "/cdx?url=x&output=y")
    assert (code, json.loads(body)) == (400, {"message": "output=y not supported"})
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert ask(crawl, f"/cdx?url={url}", Host="rebound.example:9410")[0] == 421
    assert ask(crawl, f"/warc/{file}")[0] == 404


def order(crawl: SimpleNamespace, what: str, status: int = 200, /, **body: Any) -> Any:
    """Give an order, with the token of the crawl."""
    code, _, answer = post(crawl, what, json.dumps(body).encode())
    assert code == status, answer
    found = json.loads(answer)
    return found["message"] if status == 200 else found["error"]


def post(crawl: SimpleNamespace, name: str, body: bytes, **headers: str) -> tuple[int, Any, bytes]:
    token = (crawl.jobdir / CONTROL_TOKEN).read_text().strip()
    headers = {"Authorization": f"Bearer {token}", **headers}
    return ask(crawl, f"/api/v1/{name}", body, **headers)


def check_the_orders(crawl: SimpleNamespace) -> None:
    own = crawl.web.url("a.test")
    name = own.split("/")[2]
    assert (crawl.jobdir / CONTROL_TOKEN).stat().st_mode & 0o777 == 0o600
    assert order(crawl, "pause", host=own).startswith(f"{name} is paused")
    assert "It is paused" in api(crawl, f"host?name={quote(own)}")["why"]
    assert ", each host after its delay. It covers 1 host " in order(crawl, "resume", host=own)
    assert order(crawl, "block", name=own).startswith(f"{name} is blocked")
    found = api(crawl, f"explain?url={quote(own)}7")
    assert f"It is blocked by {name} (HTTP from 127.0.0.1, 20" in found["why"]
    assert ", each host after its delay. It covers 1 host (" in order(crawl, "unblock", name=own)
    assert order(crawl, "delay", host=own, seconds=9).startswith(f"{name} waits 9 s or more")
    assert " has the delay of the settings. " in order(crawl, "delay", host=own, seconds=None)
    assert order(crawl, "add", url=f"{own}new", priority=9) == "queued"
    assert order(crawl, "set", name="LOG_LEVEL", value="INFO") == (
        "LOG_LEVEL=INFO until the process ends"
    )
    assert ask(crawl, "/readyz")[::2] == (200, b"ready\n")
    assert order(crawl, "pause").startswith("paused")
    code, _, why = ask(crawl, "/readyz")
    assert (code, why[:18]) == (503, b"paused by a person")
    assert order(crawl, "resume") == "it goes on"
    assert post(crawl, "resume", b"")[0] == 200


def check_the_documented_command(crawl: SimpleNamespace) -> None:
    page = (Path(__file__).parents[2] / "docs" / "watching.md").read_text()
    found = re.search(r"```text\n\$ (curl .*?)\n(\{.*?\})\n```", page, re.DOTALL)
    assert found is not None
    command = found[1].replace("JOBDIR", str(crawl.jobdir))
    command = command.replace("http://127.0.0.1:9410", crawl.url)
    done = subprocess.run(["/bin/sh", "-c", command], stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode() == found[2]


def check_refused_orders(crawl: SimpleNamespace) -> None:
    own = crawl.web.url("a.test")
    assert "KROWL_EXCLUDE is not set" in order(crawl, "reload", 400)
    assert "not the name of a host" in order(crawl, "forget", 400, name="ftp://a.test/a/b")
    assert "below the least delay" in order(crawl, "delay", 409, host=own, seconds=0.1)
    assert "no host 'x.test' at any port" in order(crawl, "forget", 404, name="x.test")
    assert "no host, domain or SURT prefix" in order(crawl, "block", 400, name="a b")
    assert "not the name of one host" in order(crawl, "pause", 400, host="*.test")
    assert "cannot be changed" in order(crawl, "set", 400, name="JOBDIR", value="x")
    for url in ("no URL", "data:,x", "http://[::1"):
        assert "is not a URL that a crawl fetches" in order(crawl, "add", 400, url=url)
    assert "longer than any name" in order(crawl, "block", 400, name="x" * 301)
    for folder in ("/", "/a\0b"):
        assert "is not the name of a new folder" in order(crawl, "snapshot", 400, folder=folder)
    assert "add needs url" in order(crawl, "add", 400)
    assert "add takes url, priority, not 'x'" in order(crawl, "add", 400, url=own, x=1)
    assert "priority is not integer" in order(crawl, "add", 400, url=own, priority=True)
    assert "seconds is not number or null" in order(crawl, "delay", 400, host=own, seconds=10**400)
    for body in (b"{", b"[]", b"\xff", b"[" * 9000, b'{"host": NaN}'):
        assert post(crawl, "pause", body)[0] == 400
    assert post(crawl, "pause", b" " * 16385)[0] == 413
    # In a coding its length is another one.
    assert post(crawl, "pause", compress(b"{}"), **{"Content-Encoding": "gzip"})[0] == 415
    for wrong in ("", "Bearer", "Bearer x", "Basic x", "Bearer \xe9"):
        code, headers, _ = post(crawl, "pause", b"{}", Authorization=wrong)
        assert (code, headers["WWW-Authenticate"]) == (401, "Bearer"), wrong
    assert post(crawl, "pause", b"{}", Host="rebound.example:9410")[0] == 421
    assert ask(crawl, "/api/v1/pause")[0] == 405
    assert ask(crawl, "/api/v1/status", b"{}")[0] == 405
    assert api(crawl, "status")["paused"] == ""


def check_the_document(crawl: SimpleNamespace) -> None:
    """The OpenAPI document has each route of the API, and the fields of each answer."""
    paths = api(crawl, "openapi.json")["paths"]
    made = routes(*[None] * 3, "token")  # type: ignore[arg-type]
    served = {path for path in made if "/api/" in path}
    named = {
        path if method == "get" else f"POST {path}"
        for path, about in paths.items()
        for method in about
    }
    assert named == served | {"/events", "/healthz", "/readyz"}
    check_the_statuses(crawl, paths)
    own = quote(crawl.web.url("a.test"))
    for path, query in (
        ("status", ""),
        ("history", ""),
        ("pages", "?limit=1"),
        ("hosts", "?sort=done&limit=1&state="),
        ("host", f"?name={own}"),
        ("answers", f"?name={own}"),
        ("nodes", ""),
        ("explain", f"?url={own}"),
        ("forecast", "?target=90%25%201d"),
        ("seeds", "?tag=none&limit=0"),
    ):
        about = paths[f"/api/v1/{path}"]["get"]
        content = about["responses"]["200"]["content"]
        check_schema(api(crawl, path + query), content["application/json"]["schema"])
        parameters = {each["name"] for each in about["parameters"]}
        assert {part.partition("=")[0] for part in query[1:].split("&") if part} == parameters


def check_the_statuses(crawl: SimpleNamespace, paths: dict[str, Any]) -> None:
    """Each path has what it answers to a good request and to each sort of bad one."""
    for path, methods in paths.items():
        for method, about in methods.items():
            if path == "/events" and method == "get":
                asked = [{"Host": "x.test"}]
            elif method == "get":
                asked = [{}, {"Host": "x.test"}]
            else:
                asked = [
                    {},
                    {"Host": "x.test"},
                    {"Authorization": "Bearer x"},
                    {"Origin": "http://x.test"},
                    {"Origin": "null"},
                    {"Content-Encoding": "br"},
                ]
            for headers in asked:
                token = {
                    "Authorization": f"Bearer {(crawl.jobdir / CONTROL_TOKEN).read_text().strip()}"
                }
                sent = {**token, **headers} if method == "post" else headers
                body = b"[]" if method == "post" else None
                code, _, answer = ask(crawl, path, body, **sent)
                assert str(code) in about["responses"], (path, method, headers, code)
                (kind,) = about["responses"][str(code)]["content"]
                if kind == "application/json":
                    schema = about["responses"][str(code)]["content"][kind]["schema"]
                    check_schema(json.loads(answer), schema)
        if not {"get", "post"} <= methods.keys():
            body = b"{}" if "get" in methods else None
            code, headers, answer = ask(crawl, path, body)
            about = next(iter(methods.values()))["responses"]
            assert code == 405
            assert str(code) in about
            assert headers["Allow"] == ("GET, HEAD" if "get" in methods else "POST")
            assert answer


def check_that_a_foreign_page_gives_no_orders(crawl: SimpleNamespace) -> None:
    """With the token neither. A page of this server may, by whatever local name it was opened."""
    port = crawl.url.rpartition(":")[2]
    for origin in ("http://x.test", "null", f"https://127.0.0.1:{port}", "http://127.0.0.1:1", ""):
        code, _, answer = post(crawl, "pause", b'{"host": "a.test"}', Origin=origin)
        assert (code, "another site" in json.loads(answer)["error"]) == (403, True), origin
    for host in ("127.0.0.1", "localhost"):
        named = {"Host": f"{host}:{port}", "Origin": f"http://{host}:{port}"}
        assert post(crawl, "resume", b'{"host": "a.test"}', **named)[0] == 200


PYTHON = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None),
    "object": dict, "array": list,
}  # fmt: skip


def check_schema(value: Any, schema: dict[str, Any]) -> None:
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    fitting = [kind for kind in kinds if isinstance(value, PYTHON[kind])]  # type: ignore[arg-type]
    assert fitting, (value, schema)
    if value is None:
        return
    for each in value.values() if "additionalProperties" in schema else ():
        check_schema(each, schema["additionalProperties"])
    if "properties" in schema:
        assert value.keys() == schema["properties"].keys()
        for name, inner in schema["properties"].items():
            check_schema(value[name], inner)
    for each in value if "items" in schema else ():
        check_schema(each, schema["items"])


def check_the_events(crawl: SimpleNamespace) -> None:
    # The time limit of other answers is 5 s; one event is sent each second.
    with urllib.request.urlopen(crawl.url + "/events", timeout=10) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        lines = [answer.readline() for _ in range(6)]
    assert [line[:6] for line in lines] == [b"retry:", b"data: ", b"\n"] * 2
    assert json.loads(lines[4][6:]).keys() == api(crawl, "status").keys()


# Telnet's commands (RFC 854): what to answer to each offer, so that the other side asks no more.
_ANSWERS = {251: 253, 252: 254, 253: 252}


def check_the_telnet_console(crawl: SimpleNamespace) -> None:
    url = crawl.web.url("a.test", "/secret")
    with socket.create_connection(("127.0.0.1", crawl.telnet), timeout=20) as console:
        said = b""
        for awaited_text, line in (
            (b"Username: ", "scrapy"),
            (b"Password: ", (crawl.jobdir / "telnet-password").read_text().strip()),
            (b">>> ", "krowl"),
            (b"krowl.explain(", "krowl.status()"),
            (b"in flight   ", f"krowl.explain({url!r})"),
            (b"it will be dropped at its turn.", f"krowl.block({url[:-6]!r})"),
            (b" is blocked: krowl.unblock(", f"krowl.delay({url[:-6]!r}, 0)"),
            (b" is below the least delay", f"krowl.unblock({url[:-6]!r})"),
            (b"each host after its delay", "krowl.host()"),
            (b"krowl.host: host needs name", "est()"),
            (b"engine.scraper.slot.needs_backout()", ""),
        ):
            while awaited_text not in said:
                received = console.recv(65536)
                assert received, said
                for offer, option in re.findall(rb"\xff([\xfb-\xfd])(.)", received, re.DOTALL):
                    console.sendall(bytes([255, _ANSWERS[offer[0]], option[0]]))
                said += received
            assert b"Error" not in said
            said = b""
            console.sendall(line.encode() + b"\r\n")


@pytest.mark.slow
def test_a_running_crawl_answers_browsers_and_the_console(tmp_path: Path) -> None:
    with crawling(tmp_path) as crawl:
        check_the_api(crawl)
        check_bad_questions(crawl)
        check_that_other_sites_cannot_read_it(crawl)
        check_the_captures(crawl)
        check_the_telnet_console(crawl)
        check_the_document(crawl)
        check_the_orders(crawl)
        check_the_documented_command(crawl)
        check_refused_orders(crawl)
        check_that_a_foreign_page_gives_no_orders(crawl)
        check_the_events(crawl)


# --- parts ---


SHEET = '[[sheet]]\nname = "few"\nmatch = ["a.test"]\n{} = 7\n'


@pytest.mark.slow
def test_a_reload_over_http_puts_sheets_into_force(tmp_path: Path) -> None:
    """A file with an error leaves the sheets before it in force. Until it is mended, status and
    gauge say so."""
    path, new = tmp_path / "policies.toml", tmp_path / "new.toml"
    path.write_text(SHEET.format("depth"))

    def reload(key: str) -> None:
        new.write_text(SHEET.format(key))
        new.replace(path)
        said = order(crawl, "reload")
        assert said.startswith("KROWL_POLICIES: read again within two seconds")

    def faulty() -> list[bytes]:
        return re.findall(
            rb"^krowl_policies_faulty (\S+)$", ask(crawl, "/metrics")[2], re.MULTILINE
        )

    def sheets() -> str:
        (line,) = api(crawl, f"host?name={quote(crawl.web.url('a.test'))}")["sheets"]
        return str(line)

    def awaited_status(text: str) -> str:
        end = time.monotonic() + 30
        while text not in (found := api(crawl, "status")["policies"]):
            assert time.monotonic() < end, found
            time.sleep(0.05)
        return str(found)

    with crawling(tmp_path, KROWL_POLICIES=path) as crawl:
        first = awaited_status(" in force")
        assert (first[:9], faulty()) == ("1 sheet, ", [b"0.0"])
        for _ in range(2):
            reload("deptj")
            found = awaited_status("not in force: ")
            assert found == (
                f"not in force: KROWL_POLICIES {path}: {path} line 4: deptj is no key of a sheet:"
                " did you mean depth?"
            )
            assert (sheets(), faulty()) == ("depth = 7: sheet few, line 4", [b"1.0"])
        reload("max_pages")
        assert awaited_status("1 sheet, ") != first
        assert (sheets(), faulty()) == ("max_pages = 7: sheet few, line 4", [b"0.0"])


def test_the_page_has_each_element_that_its_script_names() -> None:
    folder = files("krowlspider.views.page")
    script, page = (folder.joinpath(name).read_text() for name in ("live.js", "live.html"))
    named = set(re.findall(r'\bat\("([^"]+)"\)', script))
    assert {"freshness", "forecast", "hosts"} <= named <= set(re.findall(r'id="([^"]+)"', page))


def test_the_page_is_off_with_the_metrics() -> None:
    settings = {"KROWL_CONTACT": CONTACT, "PROMETHEUS_ENABLED": 0}
    crawler = get_crawler(settings_dict=settings)
    with pytest.raises(NotConfigured):
        LivePage(crawler)


def test_the_charts_survive_a_restart_and_a_broken_file(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    figures = {"in_flight": 1, "queued": 2, "archive_mb": 3, "lag_ms": 4}
    first = History(path)
    for at in range(KEPT + 10):
        first.add(1000.0 + 10 * at, {"done": 50 * at, "failed": 20 * at, **figures})
    first.write()
    again = History(path)
    samples = again.samples()["samples"]
    assert len(samples) == KEPT
    assert samples[-1] == [1000.0 + 10 * (KEPT + 9), 5.0, 2.0, 1, 2, 3, 4]
    # The first sample of a start has no rate.
    again.add(9000.0, {"done": 7, "failed": 0, **figures})
    assert again.samples()["samples"] == samples
    for broken in ("[[1]]", "{", "[[null,1,1,1,1,1,1]]", "7"):
        path.write_text(broken)
        assert History(path).samples()["samples"] == []


def test_the_charts_of_a_new_crawl_have_samples_at_once(tmp_path: Path) -> None:
    """One each two seconds in the first minute of each start, then one each ten."""
    history = History(tmp_path / "history.json")
    figures = {"in_flight": 1, "queued": 2, "archive_mb": 3, "lag_ms": 4, "done": 0, "failed": 0}
    for at in range(61):
        # A timer may end a little early.
        history.add(1000.0 + 2 * at - 0.01 * (at % 2), figures)
    times = [sample[0] - 1000 for sample in history.samples()["samples"]]
    assert [round(time) for time in times] == [*range(2, 62, 2), *range(70, 121, 10)]
    assert (tmp_path / "history.json").exists()


@pytest.mark.slow
def test_orders_over_http_stand_after_a_kill(tmp_path: Path) -> None:
    with MockWeb(spec=SPEC) as web:
        names = ["a.test", "b.test", "c.test"]
        seeds = write_seeds(tmp_path / "seeds.txt", map(web.url, names))
        settings = {
            "PROMETHEUS_ENABLED": 1,
            "PROMETHEUS_PORT": 0,
            "KROWL_DELAY_MIN": 0.5,
            "KROWL_COMMIT_INTERVAL": 60,
        }
        run = Crawl(tmp_path / "job", arguments={"seeds": seeds}, settings=settings)
        run.start()
        crawl = SimpleNamespace(url=awaited(run, r"page (http://127.0.0.1:\d+)/;")[1])
        crawl.jobdir = run.jobdir
        run.wait_until(lambda: {f"{name}:{web.port}" for name in names} <= hosts_asked(web))
        order(crawl, "pause", host=web.url("a.test"))
        order(crawl, "block", name=web.url("b.test"))
        order(crawl, "delay", host=web.url("c.test"), seconds=86400)
        run.kill()
        at = len(web.log())
        again = Crawl(tmp_path / "job", settings=settings)
        again.start()
        crawl.url = awaited(again, r"page (http://127.0.0.1:\d+)/;")[1]
        # Seeds and robots.txt are done or queued; after the delay of the others all would be asked.
        time.sleep(3)
        for name, why in (
            ("a.test", "It is paused by a.test:"),
            ("b.test", "It is blocked by b.test"),
            ("c.test", "It is due in 2"),
        ):
            assert api(crawl, f"host?name={quote(web.url(name))}")["why"].startswith(why)
        assert hosts_asked(web, at) == set()
        again.interrupt()


def hosts_asked(web: MockWeb, at: int = 0) -> set[str]:
    return {entry.host for entry in web.log()[at:]}


@pytest.mark.slow
def test_a_site_submits_its_changes_to_a_running_crawl(tmp_path: Path) -> None:
    key = "0123456789abcdef"
    with crawling(tmp_path, KROWL_RECRAWL="continuous", KROWL_INDEXNOW=1) as crawl:
        url = crawl.web.url("a.test", "/0")

        def give(url: str) -> int:
            given = {"host": url.split("/")[2], "key": key, "urlList": [url]}
            return ask(crawl, "/indexnow", json.dumps(given).encode())[0]

        assert give(url) == 202
        assert give("http://b.test/") == 422
        query = f"/indexnow?url={quote(url)}&key={key}&keyLocation="
        assert ask(crawl, query + quote(crawl.web.url("b.test", "/x")))[0] == 422
        assert ask(crawl, "/indexnow")[0] == 400
        assert ask(crawl, "/indexnow", b"[]")[0] == 400
        assert ask(crawl, "/indexnow", b"[]", Origin="http://b.test")[0] == 403
        host, port = crawl.url.removeprefix("http://").split(":")
        assert asked_raw(host, int(port), b"HEAD /indexnow?url=x HTTP/1.1").startswith(b"405")
        said = asked_raw(host, int(port), b"PUT /indexnow HTTP/1.1")
        assert said.endswith(b"this path takes GET, HEAD, POST\n")
        # Of 100 MB no more is read than the limit.
        begun = b"POST /indexnow HTTP/1.1\r\nContent-Length: 100000000"
        assert asked_raw(host, int(port), begun, b" " * 2_100_000).startswith(b"413")
        # There is no such file.
        end = time.monotonic() + 30
        while give(url) != 403:
            assert time.monotonic() < end
            time.sleep(0.2)
        assert {each.path for each in crawl.web.log() if key in each.path} == {f"/{key}.txt"}


def asked_raw(host: str, port: int, head: bytes, body: bytes = b"") -> bytes:
    """Return an answer from its status on; nobody waits for the rest of a request."""
    with socket.create_connection((host, port), timeout=10) as client:
        client.sendall(head + b"\r\nHost: localhost\r\n\r\n" + body)
        return client.recv(1000).removeprefix(b"HTTP/1.1 ")


def test_seeds_are_asked_for_by_tag(tmp_path: Path) -> None:
    """While the crawl runs: the rows of a tag, and the counts of all tags."""
    with MockWeb(spec=SPEC) as web:
        names = {"a.test": '{"tag": "news"}', "b.test": '{"tag": "news", "depth": 0}', "c.test": ""}
        lines = [f"{web.url(name)}\t{words}".strip() for name, words in names.items()]
        seeds = write_seeds(tmp_path / "seeds.txt", lines)
        settings = {"PROMETHEUS_ENABLED": 1, "PROMETHEUS_PORT": 0, "KROWL_DELAY_MIN": 2}
        run = Crawl(tmp_path / "job", arguments={"seeds": seeds}, settings=settings)
        run.start()
        crawl = SimpleNamespace(url=awaited(run, r"page (http://127.0.0.1:\d+)/")[1])
        end = time.monotonic() + 30
        while sum(tag["done"] + tag["limited"] for tag in api(crawl, "seeds?limit=0")["tags"]) < 3:
            assert time.monotonic() < end
            time.sleep(0.1)
        found = api(crawl, "seeds?tag=news")
        one, none = api(crawl, "seeds?tag=news&limit=1"), api(crawl, "seeds?tag=other")
        run.interrupt()
    rows = [(row["seed"], row["outcome"], row["tag"]) for row in found["seeds"]]
    assert rows == [
        (web.url("a.test"), "done", "news"),
        (web.url("b.test"), "limited: depth", "news"),
    ]
    assert found["total"] == 2
    counts = ("tag", "seeds", "done", "limited", "failed", "waiting", "other")
    assert [tuple(tag[name] for name in counts) for tag in found["tags"]] == [
        ("", 1, 1, 0, 0, 0, 0),
        ("news", 2, 1, 1, 0, 0, 0),
    ]
    assert (one["total"], len(one["seeds"])) == (2, 1)
    assert (none["total"], none["seeds"], none["tags"][1]["seeds"]) == (0, [], 2)


@pytest.mark.slow
def test_a_crawl_serves_the_search_of_an_index(tmp_path: Path) -> None:
    """Its page may ask this server only, as the form needs; the index may come later."""
    folder = tmp_path / "index"
    with crawling(tmp_path, KROWL_SEARCH=folder) as crawl:
        status, _, said = ask(crawl, "/search.json?q=kiwi")
        assert (status, "there is no index" in str(said)) == (503, True)
        index(folder, [Page("https://a.test/", "Kiwi", "kiwi")])
        status, _, said = ask(crawl, "/search.json?q=kiwi")
        assert (status, "https://a.test/" in str(said)) == (200, True)
        assert ask(crawl, "/search?q=kiwi")[0] == 200
        assert 'href="/search"' in str(ask(crawl, "/")[2])
    with crawling(tmp_path / "without") as crawl:
        assert 'href="/search"' not in str(ask(crawl, "/")[2])
