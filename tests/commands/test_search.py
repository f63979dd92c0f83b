"""``scrapy search``: a terminal, JSON, a server, and bad input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from tests.search.indexes import Page, index
from tests.support.crawling import ROOT, scrapy

if TYPE_CHECKING:
    from pathlib import Path

PAGES = [
    Page("https://a.test/", "Kiwi", "a kiwi is a fruit"),
    Page("gemini://cap.test/", "Gemini kiwi \x1b[31m", "kiwi", lang="de", mime="text/gemini"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return index(tmp_path_factory.mktemp("index"), PAGES)


def refusal(*words: object) -> str:
    """Return the line on standard error of a call that is refused."""
    (line,) = scrapy("search", *words, code=2).stderr.decode().splitlines()
    return line


@pytest.mark.slow
def test_answers_in_a_terminal_and_in_json(folder: Path):
    said = scrapy("search", folder, "kiwi", "--explain").stdout.decode()
    assert "1. Kiwi\n   https://a.test/\n" in said
    assert "kiwi in body: BM25" in said
    assert "\x1b" not in said
    assert "2 pages found, of 2 in the index, in" in said
    assert "  score\n" in said
    found = json.loads(scrapy("search", folder, "kiwi", "--lang", "de", "--json").stdout)
    assert [each["url"] for each in found["results"]] == ["gemini://cap.test/"]
    assert "0 pages found, of 2" in scrapy("search", folder, "mango", code=1).stdout.decode()


@pytest.mark.slow
def test_bad_input_is_told_in_a_line(folder: Path, tmp_path: Path):
    assert "there is no index" in refusal(tmp_path / "none", "kiwi")
    assert "--lang deutsch is no language" in refusal(folder, "kiwi", "--lang", "deutsch")
    assert "asks for nothing: give words" in refusal(folder, "++")
    assert "'-kiwi' asks for nothing: a query that only excludes" in refusal(folder, "-kiwi")
    assert "--limit 0: give 1 to 100" in refusal(folder, "kiwi", "--limit", "0")
    assert "no links" in refusal(folder, "kiwi", "--rank", "salsa")
    assert "--serve 8092 is not HOST:PORT" in refusal(folder, "--serve", "8092")
    assert "--replay x is no collection" in refusal(
        folder, "--serve", "127.0.0.1:0", "--replay", "x"
    )


@pytest.mark.slow
def test_server_answers_until_a_signal(folder: Path):
    command = [sys.executable, "-m", "scrapy", "search", str(folder), "--serve", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        url = server.stdout.readline().decode().split(" at ")[1].split(";")[0]
        with urlopen(f"{url}?q=kiwi") as answer:
            assert b"Gemini <mark>kiwi</mark>" in answer.read()
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
