"""Killed at many moments, client or server: the tables are equal at the end."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from contextlib import closing
from threading import Event, Thread
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from krowlspider.catalogue.databases import sink_at
from krowlspider.catalogue.postgresql import PostgresqlSink
from krowlspider.catalogue.server import Database
from tests.catalogue.database_kills import names
from tests.catalogue.made_rows import ALL, made_rows
from tests.catalogue.test_postgresql import tables_of
from tests.catalogue.test_sinks import assert_has, sink_in
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support import postgresql as support

pytestmark = pytest.mark.slow
FILES, ROWS = 8, 60
_WORDS = (sys.executable, "-m", "tests.catalogue.database_kills")


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_a_killed_client_goes_on(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    kept, chance, kills = sink_in(kind, request, tmp_path), random.Random(7), 0
    while True:
        words = (*_WORDS, kept.url, str(FILES), str(ROWS))
        with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
            try:
                assert process.wait(chance.uniform(0.0, 0.05 * (kills + 1))) == 0
            except subprocess.TimeoutExpired:
                process.kill()
                kills += 1
            else:
                break
    assert kills > 2
    assert_has(kept, [row for name in names(FILES) for row in made_rows(name, ROWS)])


def test_a_killed_server_goes_on(postgresql: support.Server) -> None:
    files, made = names(FILES), f"kills-{uuid4()}"
    with closing(sink_at(postgresql.make(f"{made}-calm"), ALL, pytest.fail)) as sink:
        for name in files:
            sink.write(name, made_rows(name, ROWS))
    url, lines, over = postgresql.make(made), list[str](), Event()

    def kill() -> None:
        chance = random.Random(3)
        while not over.wait(chance.uniform(0.02, 0.4)):
            postgresql.kill()
            time.sleep(chance.uniform(0.0, 0.2))
            postgresql.start()

    server = Database(url, lines.append, sleep=lambda _: time.sleep(0.05))
    killer = Thread(target=kill)
    with closing(PostgresqlSink(server, ALL, lines.append)) as sink:
        killer.start()
        try:
            for name in files:
                sink.write(name, made_rows(name, ROWS))
        finally:
            over.set()
            killer.join()
    assert len(lines) > 3
    assert tables_of(postgresql, made) == tables_of(postgresql, f"{made}-calm")
