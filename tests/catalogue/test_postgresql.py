"""A server that fails: nothing is lost, nothing is twice, and a person is told why it waits."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from krowlspider.catalogue.columns import TABLES
from krowlspider.catalogue.databases import sink_at
from krowlspider.catalogue.postgresql import PostgresqlSink
from krowlspider.catalogue.server import WAIT_MAX, Database
from krowlspider.catalogue.spool import URL_MAX
from krowlspider.errors import KrowlError
from tests.catalogue.made_rows import ALL, made_rows
from tests.catalogue.relay import relay
from tests.support import postgresql as support

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FILES = ("first.warc.gz", "second.warc.gz")
ROWS = 40


class Waiting:
    """Takes the place of the clock, and of the person who reads the lines."""

    def __init__(self, act: Callable[[], object] = lambda: None) -> None:
        self.waits: list[float] = []
        self.lines: list[str] = []
        self._act = act

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self._act()

    def sink(self, url: str, answer_max: float = 60) -> PostgresqlSink:
        server = Database(url, self.lines.append, sleep=self.sleep, answer_max=answer_max)
        return PostgresqlSink(server, ALL, self.lines.append)


@pytest.fixture
def name() -> str:
    return f"server-{uuid4()}"


def tables_of(server: support.Server, name: str) -> list[Any]:
    """Return all rows, and the files that are done."""
    ask = server.ask
    return [
        *(sorted(ask(name, f"SELECT * FROM krowl.{each}"), key=repr) for each in TABLES),
        sorted(ask(name, "SELECT name, rows FROM krowl.file")),
    ]


@pytest.fixture(scope="module")
def expected(postgresql: support.Server) -> list[Any]:
    """The tables that nothing has disturbed."""
    with closing(sink_at(postgresql.make("undisturbed"), ALL, pytest.fail)) as sink:
        for file in FILES:
            sink.write(file, made_rows(file, ROWS))
    return tables_of(postgresql, "undisturbed")


@pytest.mark.slow
@pytest.mark.parametrize("cut_answer", [False, True])
def test_a_lost_connection_loses_and_doubles_nothing(
    postgresql: support.Server, name: str, expected: list[Any], *, cut_answer: bool
) -> None:
    """It is cut at many places of what is sent: login, migration, COPY, commit."""
    with relay(postgresql.port, None) as through:
        made = postgresql.make(name)
        url = made.replace(str(postgresql.port), str(through.port))
        with closing(Waiting().sink(url)) as sink:
            start = through.passed
            sink.write(FILES[0], made_rows(FILES[0], ROWS))
    for place in range(50, through.passed - start, (through.passed - start) // 8):
        postgresql.ask(name, "DROP SCHEMA krowl CASCADE")
        waiting = Waiting()
        with relay(postgresql.port, start + place, cut_answer=cut_answer) as cutting:
            url = made.replace(str(postgresql.port), str(cutting.port))
            with closing(waiting.sink(url)) as sink:
                for file in FILES:
                    sink.write(file, made_rows(file, ROWS))
        assert waiting.waits == [1.0]
        assert "trying again in 1 s; Ctrl-C ends it" in waiting.lines[0]
        assert tables_of(postgresql, name) == expected


def test_waits_grow_to_a_bound_and_are_told(
    postgresql: support.Server, name: str, expected: list[Any]
) -> None:
    waiting = Waiting(lambda: len(waiting.waits) == 8 and postgresql.start())
    with closing(waiting.sink(postgresql.make(name))) as sink:
        sink.write(FILES[0], made_rows(FILES[0], ROWS))
        postgresql.kill()
        sink.write(FILES[1], made_rows(FILES[1], ROWS))
    assert waiting.waits == [1, 2, 4, 8, 16, WAIT_MAX, WAIT_MAX, WAIT_MAX]
    assert len(waiting.lines) == len(waiting.waits)
    assert "Connection refused" in waiting.lines[-1]
    assert not any(support.PASSWORD in line for line in waiting.lines)
    assert tables_of(postgresql, name) == expected


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_left(
    postgresql: support.Server, name: str, expected: list[Any]
) -> None:
    frozen: list[int] = []
    waiting = Waiting(lambda: os.kill(frozen[0], signal.SIGCONT))
    with closing(waiting.sink(postgresql.make(name), answer_max=1.0)) as sink:
        frozen += sink._server.ask("SELECT pg_backend_pid()")[0]
        os.kill(frozen[0], signal.SIGSTOP)
        for file in FILES:
            sink.write(file, made_rows(file, ROWS))
    assert waiting.waits == [1.0]
    assert tables_of(postgresql, name) == expected


@pytest.mark.slow
def test_a_restored_database_goes_on_from_its_checkpoints(
    postgresql: support.Server, name: str, expected: list[Any]
) -> None:
    waiting = Waiting()
    with closing(waiting.sink(postgresql.make(name))) as sink:
        sink.write(FILES[0], made_rows(FILES[0], ROWS))
        sink.close()
        ask = postgresql.ask
        ask("postgres", f'CREATE DATABASE "{name}-backup" TEMPLATE "{name}"')
        sink.write(FILES[1], made_rows(FILES[1], ROWS))
        assert sink.done() == set(FILES)
        ask("postgres", f'DROP DATABASE "{name}" WITH (FORCE)')
        ask("postgres", f'ALTER DATABASE "{name}-backup" RENAME TO "{name}"')
        assert sink.done() == {FILES[0]}
        sink.write(FILES[1], made_rows(FILES[1], ROWS))
    assert tables_of(postgresql, name) == expected


@pytest.mark.parametrize(
    ("state", "error", "is_tried_again"),
    [
        ("53100", "No space left on device", True),
        ("40P01", "deadlock detected", True),
        ("57014", "canceling statement due to statement timeout", True),
        ("23514", "new row violates a check", False),
        ("42501", "permission denied for table page", False),
    ],
)
def test_only_what_waiting_may_mend_is_tried_again(
    postgresql: support.Server, name: str, state: str, error: str, *, is_tried_again: bool
) -> None:
    waiting = Waiting(lambda: postgresql.ask(name, "DROP FUNCTION krowl.fail() CASCADE"))
    with closing(waiting.sink(postgresql.make(name))) as sink:
        postgresql.ask(
            name,
            "CREATE FUNCTION krowl.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" RAISE EXCEPTION '{error}' USING ERRCODE = '{state}'; END $$;"
            " CREATE TRIGGER fail BEFORE INSERT ON krowl.page_by_file"
            " EXECUTE FUNCTION krowl.fail()",
        )
        if is_tried_again:
            sink.write(FILES[0], made_rows(FILES[0], 2))
            assert f"failed ({error}): trying again in 1 s" in waiting.lines[0]
        else:
            with pytest.raises(KrowlError, match=f"cannot be used: {error}"):
                sink.write(FILES[0], made_rows(FILES[0], 2))
        assert sink.done() == ({FILES[0]} if is_tried_again else set())
    assert waiting.waits == [1.0] * is_tried_again


@pytest.mark.slow
def test_two_writers_take_turns(postgresql: support.Server, name: str, expected: list[Any]) -> None:
    """As those of two JOBDIRs, or of one by mistake, as here: in opposite orders."""
    url = postgresql.make(name)
    writers = [Waiting() for _ in range(2)]

    def write(waiting: Waiting, files: Sequence[str]) -> None:
        with closing(waiting.sink(url)) as sink:
            for file in files:
                sink.write(file, made_rows(file, ROWS))

    with ThreadPoolExecutor() as pool:
        list(pool.map(write, writers, (FILES * 3, FILES[::-1] * 3)))
    assert [each.lines for each in writers] == [[], []]
    assert tables_of(postgresql, name) == expected


def test_a_password_that_has_changed_ends_it(postgresql: support.Server, name: str) -> None:
    role = f"role-{name}"
    postgresql.ask("postgres", f"CREATE ROLE \"{role}\" SUPERUSER LOGIN PASSWORD 'secret-one'")
    url = (
        postgresql.make(name)
        .replace("krowl:", f"{role}:")
        .replace(postgresql.url().split(":")[2].split("@")[0], "secret-one")
    )
    waiting = Waiting()
    with closing(waiting.sink(url)) as sink:
        postgresql.ask("postgres", f"ALTER ROLE \"{role}\" PASSWORD 'secret-two'")
        sink._server.ask("SELECT 1")
        sink.close()
        with pytest.raises(KrowlError, match="password authentication failed") as raised:
            sink.done()
    assert "secret-one" not in f"{raised.value!r}"
    assert waiting.waits == []


SECRET = "p4ss"
AT = f"u:{SECRET}@127.0.0.1"


@pytest.mark.parametrize(
    ("url", "error"),
    [
        (f"postgresql://{AT}:PORT/postgres", "password authentication failed for user"),
        ("postgresql://krowl:RIGHT@127.0.0.1:PORT/none", 'database "none" does not exist'),
        ("postgresql://krowl@127.0.0.1:PORT/postgres", "no password supplied"),
        (f"postgresql://{AT}:1/postgres", "127.0.0.1:1/postgres cannot be used: .* refused"),
        (f"postgresql://u:{SECRET}@host.invalid/x", "failed to resolve host 'host.invalid'"),
        (f"postgresql://u:{SECRET}/slash@127.0.0.1/x", "write / as %2F"),
        (f"postgresql://u:{SECRET}#@127.0.0.1/x", "not a URL of PostgreSQL"),
        (f"postgresql://{AT}/x?pass={SECRET}", "not a URL of PostgreSQL"),
        (f"postgresql://u:{SECRET}%zz@127.0.0.1/x", "not a URL of PostgreSQL"),
        (f"mysql://{AT}/x", "mysql://... is not a URL of PostgreSQL or SQLite"),
        (f"{AT}/x", "not the URL of a database"),
        ("sqlite:///", "sqlite://... is not a URL of PostgreSQL or SQLite"),
        ("sqlite:////nowhere/x.db", "/nowhere/x.db cannot be used: unable to open"),
        ("sqlite:////etc/passwd", "/etc/passwd cannot be used: file is not a database"),
    ],
)
def test_a_database_that_is_none_is_refused_without_its_password(
    postgresql: support.Server, monkeypatch: pytest.MonkeyPatch, url: str, error: str
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("HOME", "/nowhere")
    right = postgresql.url().split(":")[2].split("@")[0]
    with pytest.raises(KrowlError, match=error) as raised:
        sink_at(url.replace("PORT", str(postgresql.port)).replace("RIGHT", right), ALL, pytest.fail)
    text = str(raised.value)
    assert SECRET not in text
    assert support.PASSWORD not in text
    assert "\n" not in text


def test_a_user_without_rights_is_told_so(postgresql: support.Server, name: str) -> None:
    postgresql.ask("postgres", f"CREATE ROLE \"{name}\" LOGIN PASSWORD 'p'")
    postgresql.make(name)
    url = f"postgresql://{name}:p@127.0.0.1:{postgresql.port}/{name}"
    with pytest.raises(KrowlError, match=r"permission denied for database .*: grant it to"):
        sink_at(url, ALL, pytest.fail)


def test_a_database_in_another_encoding_is_refused(postgresql: support.Server) -> None:
    words = "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
    postgresql.ask("postgres", words)
    with pytest.raises(KrowlError, match="has the encoding LATIN1: create it with ENCODING 'UTF8'"):
        sink_at(postgresql.url("latin"), ALL, pytest.fail)


def test_a_url_too_long_for_an_index_is_left_out_and_told(
    postgresql: support.Server, name: str
) -> None:
    ((_, row),) = made_rows(FILES[0], 1, ("page_by_file",))
    lines: list[str] = []
    with closing(sink_at(postgresql.make(name), ALL, lines.append)) as sink:
        # Random letters, as PostgreSQL compresses keys.
        text = "https://a.example/" + os.urandom(URL_MAX).hex()
        longest = row | {"url": text[:URL_MAX]}
        too_long = row | {"url": text[: URL_MAX + 1]}
        sink.write(FILES[0], [("page_by_file", longest), ("page_by_file", too_long)])
    assert postgresql.ask(name, "SELECT url FROM krowl.page_by_file") == [(text[:URL_MAX],)]
    (line,) = lines
    assert line.startswith(f"{FILES[0]}: left out of PostgreSQL at 127.0.0.1:")
    assert line.endswith(": 1 row with a URL too long for an index")
