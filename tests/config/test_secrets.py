"""Secrets: read from files and the environment, in no log, and out of reach of others on the
machine."""

from __future__ import annotations

import gzip
import json
import logging
import os
import pprint
import re
import socket
import stat
import subprocess
import sys
from configparser import ConfigParser, InterpolationMissingOptionError
from typing import TYPE_CHECKING

import pytest

from krowlspider.config.log import IN_FILES, keep_out_of_logs
from krowlspider.config.validation import validate
from krowlspider.job.monitoring.access import TELNET_PASSWORD
from tests.mockweb import MockWeb
from tests.support.crawling import ROOT
from tests.support.crawls import crawl_of, page
from tests.support.settings import project_settings, refusal
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "s3cret/of-the_crawl+1"
URL = f"redis://:{SECRET}@127.0.0.1:6379/0"
RING = ["a=redis://127.0.0.1:1/0", "b=redis://127.0.0.1:1/1"]


def secret_file(folder: Path, text: str) -> Path:
    path = folder / "secret"
    path.write_text(text)
    return path


def notify_file(folder: Path) -> Path:
    path = folder / "notify"
    path.write_text(f"true {SECRET}\n")
    return path


# --- where they come from ---


@pytest.mark.parametrize("name", IN_FILES)
def test_a_secret_is_read_from_the_file_that_is_named(name: str, tmp_path: Path) -> None:
    value = URL if name == "REDIS_URL" else SECRET
    settings = project_settings(**{f"{name}_FILE": str(secret_file(tmp_path, f"{value}\n"))})
    for _ in range(2):
        # `scrapy crawl` checks them, and the add-on does again.
        validate(settings)
        assert settings[name] == value


def test_a_secret_and_its_file_together_stop_the_start(tmp_path: Path) -> None:
    path = str(secret_file(tmp_path, URL))
    said = refusal(REDIS_URL=URL, REDIS_URL_FILE=path)
    assert said == "REDIS_URL and REDIS_URL_FILE are both given: give one of them"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file"), ("  \n", "is empty"), (b"\xff\xfe", "it is not text")],
)
def test_a_file_without_a_secret_stops_the_start(
    tmp_path: Path, content: str | bytes | None, reason: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    said = refusal(KROWL_CONSUL_TOKEN_FILE=str(path))
    assert f"KROWL_CONSUL_TOKEN_FILE={path}" in said
    assert reason in said


def test_a_wrong_secret_is_refused_without_being_told(tmp_path: Path) -> None:
    said = refusal(REDIS_URL_FILE=str(secret_file(tmp_path, f"http://{SECRET}")))
    assert said.startswith("REDIS_URL is not the URL of a Redis")
    assert SECRET not in said


def test_the_environment_is_the_least_of_their_sources(tmp_path: Path) -> None:
    program = """
from krowlspider.addon import Krowl
from krowlspider.config.validation import validate
from scrapy.settings import Settings
import json, sys
for given in json.loads(sys.argv[1]):
    settings = Settings()
    Krowl.update_pre_crawler_settings(settings)
    settings.setdict({"KROWL_CONTACT": "me@krowlspider.internal", **given}, "cmdline")
    validate(settings)
    print(json.dumps([settings["REDIS_URL"], settings["KROWL_CONSUL_TOKEN"]]))
"""
    path = str(secret_file(tmp_path, SECRET))
    environment = {**os.environ, "REDIS_URL": URL, "KROWL_CONSUL_TOKEN_FILE": path}
    other = "redis://127.0.0.1:1/0"
    command = [sys.executable, "-c", program, json.dumps([{}, {"REDIS_URL": other}])]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found == [[URL, SECRET], [other, SECRET]]


# --- where they do not go ---


@pytest.mark.parametrize("secret", [SECRET, "it's", 'say "so"', "both ' and \"", "two words " * 20])
def test_scrapys_list_of_settings_is_logged_without_secrets(
    secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"AWS_SECRET_ACCESS_KEY": secret, "BOT_NAME": "b", "TELNETCONSOLE_PASSWORD": secret}
    keep_out_of_logs()
    keep_out_of_logs()
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("scrapy.crawler").info(
            "Overridden settings:\n%(settings)s", {"settings": pprint.pformat(settings)}
        )
    for part in (secret, repr(secret)[1:-1], "two words"):
        assert part not in caplog.text
    assert "'BOT_NAME': 'b'" in caplog.text
    assert "'TELNETCONSOLE_PASSWORD': '...'" in caplog.text.replace("(", "").replace(")", "")


def test_nothing_that_a_crawl_leaves_has_a_secret_in_it(tmp_path: Path) -> None:
    """Log, stats, status and WARC files; the folder is closed to others."""
    settings = {
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "TELNETCONSOLE_PASSWORD": SECRET,
        "TELNETCONSOLE_ENABLED": 1,
        "TELNETCONSOLE_PORT": "0,0",
        "KROWL_CONSUL_TOKEN": SECRET,
        "KROWL_CONTROL_TOKEN": SECRET,
        "KROWL_NOTIFY_FILE": notify_file(tmp_path),
        "REDIS_URL_FILE": secret_file(tmp_path, URL),
        "LOG_LEVEL": "DEBUG",
        "STATS_DUMP": 1,
    }
    with MockWeb(spec=[page("^/", "a page")]) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=settings).run()
    assert "Overridden settings" in crawl.log
    assert SECRET not in crawl.log
    assert SECRET not in json.dumps(crawl.stats)
    files = [path for path in crawl.jobdir.rglob("*") if path.is_file()]
    assert any(path.suffix == ".gz" for path in files)
    for path in files:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        assert SECRET.encode() not in content, path
    assert not (crawl.jobdir / TELNET_PASSWORD).exists()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_telnet_password_is_in_a_file_for_its_owner_alone(tmp_path: Path) -> None:
    with MockWeb(spec=[page("/robots.txt", ""), page("^/", "late", latency=60)]) as web:
        settings = {"TELNETCONSOLE_ENABLED": 1, "TELNETCONSOLE_PORT": "0,0"}
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=settings).start()
        crawl.wait_until(lambda: "; telnet 127.0.0.1 " in crawl.log)
        path = crawl.jobdir / TELNET_PASSWORD
        assert (mode(crawl.jobdir), mode(path)) == (0o700, 0o600)
        password = path.read_text().strip()
        assert len(password) == 32
        assert password not in crawl.log
        assert str(path) in crawl.log
        (port,) = re.findall(r"; telnet 127\.0\.0\.1 (\d+) ", crawl.log)
        assert ">>>" in telnet(int(port), password)
        crawl.interrupt()
        assert not path.exists()


def telnet(port: int, password: str) -> str:
    """What the console says to one who has the password."""
    said = b""
    steps = [
        (b"Username: ", b"scrapy\r\n"),
        # It echoes no more: IAC DO ECHO; and then does again: IAC DONT ECHO.
        (b"Password: ", b"\xff\xfd\x01" + password.encode() + b"\r\n"),
        (b"\xff\xfc\x01", b"\xff\xfe\x01"),
        (b">>>", b""),
    ]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        for expected, answer in steps:
            while expected not in said:
                received = connection.recv(4096)
                assert received, said
                said += received
            connection.sendall(answer)
    return said.decode(errors="replace")


def test_a_jobdir_that_is_there_keeps_its_mode_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job").chmod(0o755)
    with SimulatedWeb(spec=[page("^/", "a page")]) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")]).run()
        (warning,) = crawl.complaints
        assert f"Others can get into JOBDIR {crawl.jobdir}, which has mode 755" in warning
        assert mode(crawl.jobdir) == 0o755


# --- deployment ---


def test_scrapyd_listens_on_loopback_and_needs_a_password() -> None:
    read = ConfigParser()
    read.read(ROOT / "deploy" / "scrapyd.conf")
    assert read.get("scrapyd", "bind_address") == "127.0.0.1"
    assert read.get("scrapyd", "username")
    # scrapyd reads it at the start, unless SCRAPYD_PASSWORD is there.
    with pytest.raises(InterpolationMissingOptionError, match="set scrapyd_password in the env"):
        read.get("scrapyd", "password")


def test_the_deployment_guide_has_no_secret_on_a_command_line() -> None:
    guide = (ROOT / "deploy" / "README.md").read_text()
    for name in IN_FILES:
        assert f"setting={name}=" not in guide
        assert f"-s {name}=" not in guide
        assert f"`{name}_FILE`" in guide
