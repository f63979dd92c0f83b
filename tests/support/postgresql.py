"""A PostgreSQL server of its own for tests, at a port of 127.0.0.1."""

from __future__ import annotations

import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg

from tests.support.debian import program

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

USER, PASSWORD = "krowl", "s3cret:/@pass"
# Seconds.
_TIMEOUT = 60


class Server:
    """A cluster in a folder. `url` reaches a database in it, with the password. Without ``fsync``
    only a machine that stops could lose a commit."""

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        self.folder = folder
        self._fsync = "on" if fsync else "off"
        self.data = folder / "data"
        self.port = _free_port()
        self._pg_ctl = program("pg_ctl")
        password = folder / "password"
        password.write_text(PASSWORD)
        # PostgreSQL does not run as root.
        self._user = _other_user() if os.geteuid() == 0 else None
        if self._user is not None:
            for path in (folder, password):
                shutil.chown(path, self._user.pw_uid, self._user.pw_gid)
        options = f"--username={USER} --pwfile={password} --auth=scram-sha-256 --no-sync"
        self._run("initdb", "-o", f"{options} --encoding=UTF8 --locale=C")

    def _run(self, verb: str, *words: str) -> None:
        who: dict[str, Any] = {}
        if self._user is not None:
            who = {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": ()}
        # The server that stays keeps what it is given open, so a pipe would never end.
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                [self._pg_ctl, verb, "-D", self.data, *words],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                timeout=_TIMEOUT,
                check=False,
                **who,
            )
            output.seek(0)
            assert done.returncode == 0, output.read()

    def start(self) -> None:
        """Start it, after a kill too."""
        options = (
            f"-c listen_addresses=127.0.0.1 -c port={self.port} -c fsync={self._fsync}"
            " -c unix_socket_directories= -c dynamic_shared_memory_type=mmap"
        )
        self._run("start", "-w", "-l", str(self.folder / "log"), "-o", options)

    def stop(self) -> None:
        """Stop it at once: clients lose their connections."""
        self._run("stop", "-m", "immediate", "-w")

    @property
    def pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def kill(self) -> None:
        """Kill the server and the processes of its connections."""
        pid = self.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            os.kill(each, signal.SIGKILL)
        for each in (pid, *map(int, children)):
            _wait_for_end(each)
        # Where nobody asks for their exit codes, dead processes keep their numbers.
        (self.data / "postmaster.pid").unlink()

    def url(self, database: str = "postgres", password: str = PASSWORD) -> str:
        return f"postgresql://{USER}:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}"

    def make(self, database: str) -> str:
        """Make an empty database, and return its URL."""
        self.ask("postgres", f'CREATE DATABASE "{database}"')
        return self.url(database)

    @contextmanager
    def session(self, database: str) -> Iterator[psycopg.Connection]:
        """A connection that stays open during the block."""
        with closing(psycopg.connect(self.url(database), autocommit=True)) as connection:
            yield connection

    def ask(self, database: str, query: str) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a query in a database."""
        with self.session(database) as connection:
            cursor = connection.execute(query)  # type: ignore[arg-type]
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description else []


@contextmanager
def running(*, fsync: bool = False) -> Iterator[Server]:
    """A server that runs, and is gone after the block."""
    folder = Path(tempfile.mkdtemp(prefix="krowlspider-postgresql-"))
    try:
        server = Server(folder, fsync=fsync)
        server.start()
        try:
            yield server
        finally:
            if (server.data / "postmaster.pid").exists():
                server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _other_user() -> pwd.struct_passwd:
    """Return a user of the machine that is not root."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise AssertionError("run the tests as a user, or make one named postgres")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _wait_for_end(pid: int) -> None:
    """Wait until a killed process is gone: its data folder may be used again."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([process], [], [], _TIMEOUT)
    os.close(process)
