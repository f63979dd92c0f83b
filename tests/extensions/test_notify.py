"""Notices of a crawl: by which events, and to a command or a webhook, however slow."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread
from threading import enumerate as threads
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from scrapy.settings import Settings

from krowlspider.config.checks import notice_target
from krowlspider.extensions import notify
from krowlspider.extensions.notify import Condition, ConditionWatch, Sender
from tests.support.crawls import AT_ONCE, crawl_of, page
from tests.support.simulated_web import SimulatedWeb
from tests.support.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator

FINE = Condition(ended=1, due=1, paused="", full=None, outage="")
NOTICE = {"event": "finished", "message": "x"}

# --- events ---


def told(watch: ConditionWatch, now: float, condition: Condition) -> list[str]:
    return [event.name for event in watch.look(now, condition)]


def test_each_event_is_told_once_as_it_begins() -> None:
    watch = ConditionWatch(0.0)
    assert told(watch, 0, FINE) == []
    bad = replace(FINE, full=Path("/x"), outage="no host answers", dead=frozenset({"b"}))
    assert told(watch, 2, bad) == ["disk_floor", "no_network", "node_lost"]
    assert told(watch, 4, bad) == []
    assert told(watch, 6, FINE) == []
    # It comes and goes: the next notice is five minutes later at the earliest.
    assert told(watch, 8, bad) == []
    assert told(watch, 10, FINE) == []
    assert told(watch, 305, bad) == ["disk_floor", "no_network", "node_lost"]


@pytest.mark.parametrize(
    ("change", "events"),
    [
        ({}, ["stalled"]),
        ({"ended": 2}, []),
        ({"due": 0}, []),
        ({"paused": "paused by a person"}, []),
    ],
)
def test_a_crawl_stalls_if_nothing_ends_though_due(
    change: dict[str, Any], events: list[str]
) -> None:
    watch = ConditionWatch(0.0)
    assert told(watch, 0, FINE) == []
    assert told(watch, 599, FINE) == []
    assert told(watch, 600, replace(FINE, **change)) == events
    assert told(watch, 601, replace(FINE, **change)) == []
    if events:
        assert told(watch, 2000, FINE) == []
        assert told(watch, 2001, replace(FINE, ended=2)) == []
        assert told(watch, 2601, replace(FINE, ended=2)) == events


# --- commands ---


def script(folder: Path, code: str) -> str:
    path = folder / "notify.py"
    path.write_text(code)
    return f"{sys.executable} -S {path}"


@pytest.mark.slow
def test_a_command_gets_the_notice_of_a_crawl(tmp_path: Path) -> None:
    code = f"import sys; open({str(tmp_path / 'got')!r}, 'a').write(sys.stdin.read())"
    with SimulatedWeb(spec=[page("/", "x")]) as web:
        settings = {**AT_ONCE, "KROWL_NOTIFY": script(tmp_path, code)}
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=settings).run()
    found = json.loads((tmp_path / "got").read_text())
    assert found["event"] == "finished"
    assert found["message"] == "broad has ended (finished), with 0 URLs left"
    assert found["crawl"] == {"spider": "broad", "folder": str(crawl.jobdir)}
    assert (found["figures"]["done"], found["figures"]["queued"]) == (1, 0)
    assert crawl.complaints == []


@pytest.mark.slow
def test_a_hanging_command_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the crawl waits for a moment only."""
    monkeypatch.setattr(notify, "_LAST", 0.5)
    pids = tmp_path / "pids"
    code = (
        "import os, time; child = os.fork()\n"
        f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "time.sleep(60)"
    )
    with SimulatedWeb(spec=[page("/", "x")]) as web:
        settings = {**AT_ONCE, "KROWL_NOTIFY": script(tmp_path, code)}
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=settings).run()
    assert "the last notice was not taken within" in crawl.log
    for pid in map(int, pids.read_text().split()):
        assert has_ended(pid)


def has_ended(pid: int) -> bool:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if ") Z " in Path(f"/proc/{pid}/stat").read_text():
            return True
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    return False


@pytest.mark.parametrize(
    ("code", "says"),
    [("import time; time.sleep(60)", "ran for"), ("raise SystemExit(3)", "ended with code 3")],
)
def test_a_command_that_fails_is_logged(
    code: str, says: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sender = Sender(script(tmp_path, code), time_limit=0.3)
    sender.send(NOTICE)
    sender.close(20)
    assert says in caplog.text


def test_a_missing_command_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    sender = Sender("/nowhere/notify")
    sender.send(NOTICE)
    sender.close(20)
    assert "/nowhere/notify: No such file or directory" in caplog.text


# --- webhooks ---


class Hook(BaseHTTPRequestHandler):
    got: list[tuple[str, Any]] = []
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append((self.path, json.loads(body)))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def hook(status: int = 200) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    kind = type("Kind", (Hook,), {"got": [], "status": status})
    with HTTPServer(("127.0.0.1", 0), kind) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", kind.got
        finally:
            server.shutdown()
            thread.join()


def test_a_webhook_gets_the_notice(caplog: pytest.LogCaptureFixture) -> None:
    with hook() as (url, got):
        sender = Sender(f"{url}/services/T0?token=secret")
        sender.send(NOTICE)
        sender.close(20)
    assert got == [("/services/T0?token=secret", NOTICE)]
    assert caplog.text == ""


def test_errors_of_a_webhook_do_not_show_its_secret(caplog: pytest.LogCaptureFixture) -> None:
    with hook(500) as (url, _):
        for target in (f"{url}/secret", "http://127.0.0.1:1/secret"):
            sender = Sender(target)
            sender.send(NOTICE)
            sender.close(20)
    assert "http://127.0.0.1 answered with status 500" in caplog.text
    assert "http://127.0.0.1 does not answer" in caplog.text
    assert "secret" not in caplog.text


def test_a_host_that_is_no_name_costs_one_notice(caplog: pytest.LogCaptureFixture) -> None:
    sender = Sender(f"http://{'a' * 64}.example/secret")
    for _ in range(2):
        sender.send(NOTICE)
    sender.close(20)
    assert caplog.text.count("is no name for the DNS") == 2
    assert "secret" not in caplog.text


def test_a_webhook_that_trickles_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = Sender(f"http://127.0.0.1:{server.getsockname()[1]}/", time_limit=0.4)
        sender.send(NOTICE)
        client, _ = server.accept()
        begun = time.monotonic()
        with client:
            while time.monotonic() - begun < 5 and sender._thread.is_alive():
                try:
                    client.sendall(b"H")
                except OSError:
                    break
                time.sleep(0.1)
                if "does not answer" in caplog.text:
                    break
        assert time.monotonic() - begun < 4
        sender.close(20)
    assert "does not answer" in caplog.text


@pytest.mark.parametrize("hangs", ["DNS", "TLS"])
def test_a_webhook_that_hangs_while_it_connects_is_given_up(
    hangs: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The time limit is that of a whole notice, and each of the next ones has its own."""
    is_over, lookup = Event(), socket.getaddrinfo

    def slow(*about: Any, **more: Any) -> Any:
        if hangs == "DNS":
            is_over.wait(20)
        return lookup(*about, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    # It accepts, and never says a word.
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        sender = Sender(f"https://localhost:{port}/", time_limit=0.1)
        begun = time.monotonic()
        for _ in range(2):
            sender.send(NOTICE)
        sender.close(20)
        assert time.monotonic() - begun < 5
        is_over.set()
        for thread in [each for each in threads() if each.name == "post"]:
            thread.join(20)
            assert not thread.is_alive()
    assert caplog.text.count("https://localhost does not answer") == 2


def test_notices_that_wait_are_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pids = tmp_path / "pids"
    code = f"import os, time; open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(60)"
    sender = Sender(script(tmp_path, code), time_limit=60)
    for _ in range(30):
        sender.send(NOTICE)
    while not (pids.exists() and pids.read_text()):
        time.sleep(0.01)
    sender.close(0)
    sender._thread.join(10)
    assert not sender._thread.is_alive()
    (pid,) = map(int, pids.read_text().split())
    assert has_ended(pid)
    assert "is not sent: others wait" in caplog.text


# --- the setting ---


@table(
    ("value", "is_right"),
    [
        ("", True),
        ("mail -s 'a b' x", True),
        ("https://hooks.example.org/T0", True),
        ("https://", False),
        ("https://u:p@x.org/", False),
        ("https://x.org:99999/", False),
        ("https://x.org/\u00e9", False),
        ("mail 'x", False),
        ("mail \0x", False),
        ("  ", False),
        (None, False),
    ],
)
def test_a_target_is_a_url_or_a_command(value: str | None, is_right: bool) -> None:
    fault = notice_target(Settings({"KROWL_NOTIFY": value}), "KROWL_NOTIFY")
    assert (fault is None) is is_right
