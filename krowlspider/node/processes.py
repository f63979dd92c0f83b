"""The processes of a crawl on one machine, their standard error, Redis and register."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import shutil
import signal
import tempfile
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING

import msgspec
from redis.exceptions import RedisError

from krowlspider.archive.disk import write_durably
from krowlspider.cluster.local import RegisterServer
from krowlspider.cluster.membership import SEED_SIZE, SIGNAL, Signal, wait_for
from krowlspider.cluster.register.lease import PENDING, NodeInfo
from krowlspider.cluster.register.port import PAGES, step
from krowlspider.cluster.ring.live_members import RegisterEntry, dead_record
from krowlspider.cluster.ring.ring import BadRecordError, load_counters
from krowlspider.cluster.transport.redis_connection import redis_client
from krowlspider.errors import JobError, KrowlError
from krowlspider.job.folder import REGISTER, SOCKETS
from krowlspider.node.tree import PROCESSES_MAX, Tree, number_of, process_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

logger = logging.getLogger(__name__)

# Deaths within so many seconds after which a process is not started again.
DEATHS_MAX = 5
_WITHIN = 600.0
BACKOFF = 1.0
# The exit code for a process that is not started again.
GIVEN_UP = 1

_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class SupervisedProcess:
    """The process ``name``; ``command`` returns its command by the number of its starts before.

    ``is_end`` returns whether an exit code is an end. After any other one, ``on_death`` is called
    and the process is started again. What it writes goes to the file ``log``, by default to the
    standard error of this process, or to the open file ``errors``. ``lock`` is an open file that it
    keeps open. ``last_signal`` is sent to it when the supervisor dies, once or several times.
    ``backoff`` are the seconds before the first restart; each further death within ten minutes
    doubles them.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[int], Sequence[str]],
        *,
        environment: Mapping[str, str],
        is_end: Callable[[int], bool],
        on_death: Callable[[], None] = lambda: None,
        log: Path | None = None,
        errors: int | None = None,
        lock: int | None = None,
        last_signal: signal.Signals = signal.SIGHUP,
        backoff: float = BACKOFF,
    ):
        self.name = name
        self.restarts = 0
        self._command = command
        self._environment = environment
        self._is_end = is_end
        self._on_death = on_death
        self._log = log
        self._errors = errors
        self._lock = lock
        self._last_signal = last_signal
        self._backoff = backoff
        self._process: asyncio.subprocess.Process | None = None
        self._stopped = asyncio.Event()
        self._deaths: deque[float] = deque(maxlen=DEATHS_MAX)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to the process, and do not start it again."""
        self._stopped.set()
        self.send(number)

    def send(self, number: int) -> None:
        """Send a signal to the process if it runs."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def run(self) -> int:
        """Run the process to its end; return its exit code.

        It is 0 if the process was stopped while it was to be started again, and GIVEN_UP after too
        many deaths.
        """
        while not self._stopped.is_set():
            self._process = await self._start()
            if self._stopped.is_set():
                self.stop()
            code = await self._process.wait()
            if self._stopped.is_set():
                # A process that has no handler yet dies by the signal, and has begun nothing.
                return 0 if code == -signal.SIGTERM else code
            if self._is_end(code):
                return code
            self._deaths.append(time.monotonic())
            self._on_death()
            if self._is_hopeless():
                logger.error(
                    "Process %s has died %d times within %d minutes, the last time with %s: it is"
                    " not started again",
                    *(self.name, DEATHS_MAX, _WITHIN // 60, _shown(code)),
                )
                return GIVEN_UP
            wait = self._wait()
            logger.warning(
                "Process %s has died with %s: starting it again in %d s, where it was",
                *(self.name, _shown(code), wait),
            )
            self.restarts += 1
            await wait_for(self._stopped, wait)
        return 0

    def _is_hopeless(self) -> bool:
        deaths = self._deaths
        return len(deaths) == DEATHS_MAX and deaths[-1] - deaths[0] < _WITHIN

    def _wait(self) -> float:
        recent = sum(self._deaths[-1] - death < _WITHIN for death in self._deaths)
        return float(self._backoff * 2 ** (recent - 1))

    async def _start(self) -> asyncio.subprocess.Process:
        supervisor = os.getpid()

        def end_with_supervisor() -> None:
            # Under nohup the supervisor ignores SIGHUP, and a process would inherit that.
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            # The kernel sends it when the main thread of the supervisor ends, and may send it again
            # for each other thread. A second SIGTERM would end a crawl as a crash does.
            _libc.prctl(_PR_SET_PDEATHSIG, self._last_signal)
            if os.getppid() != supervisor:
                os.kill(os.getpid(), signal.SIGTERM)

        output = None if self._log is None else self._log.open("wb")
        try:
            return await asyncio.create_subprocess_exec(
                *self._command(self.restarts),
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=self._errors if output is None else output,
                # The Ctrl-C of a terminal goes to the supervisor alone.
                start_new_session=True,
                preexec_fn=end_with_supervisor,
                pass_fds=() if self._lock is None else (self._lock,),
            )
        finally:
            if output is not None:
                output.close()


def _shown(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


_CHUNK = 65_536


class Relay:
    """A pipe for processes to write to: ``end`` is theirs. ``show`` gets whole lines.

    A line without an end is shown when it has 64 KiB, or at the `close`.
    """

    def __init__(self, show: Callable[[str], None]):
        self._show = show
        self._rest = b""
        self._source, self.end = os.pipe()
        os.set_blocking(self._source, False)
        asyncio.get_running_loop().add_reader(self._source, self._read)

    def _read(self) -> bool:
        """Show what is there; return whether there was anything."""
        try:
            data = os.read(self._source, _CHUNK)
        except BlockingIOError:
            return False
        lines, found, self._rest = (self._rest + data).rpartition(b"\n")
        if len(self._rest) >= _CHUNK:
            lines, found, self._rest = lines + found + self._rest, b"\n", b""
        self._pass_on(lines + found)
        return bool(data)

    def _pass_on(self, lines: bytes) -> None:
        if lines:
            self._show(lines.decode(errors="replace"))

    def close(self) -> None:
        """Show what is left. The processes have ended."""
        asyncio.get_running_loop().remove_reader(self._source)
        os.close(self.end)
        while self._read():
            pass
        self._pass_on(self._rest and self._rest + b"\n")
        os.close(self._source)


# Its forks have the same protocol and options.
_NAMES = ("redis-server", "valkey-server")
# Servers are in /usr/sbin, which some users do not have on PATH.
_SERVERS = "/usr/sbin"
# Where the tests unpack Debian's package.
_PACKAGED = (
    Path(__file__).resolve().parents[2] / ".cache" / "debian" / "redis-server" / "redis-server"
)
# Bytes of the folder of a socket: the path of a socket may have no more than 107.
_FOLDER_MAX = 97
# Its log, in its folder.
LOG = "log"
# Seconds to read its file at the start, and between two looks.
_PATIENCE = 300.0
_LOOK = 0.05


def find_redis(packaged: Path = _PACKAGED, servers: str = _SERVERS) -> Path:
    """Return the program.

    :raises KrowlError: there is none
    """
    path = f"{os.environ.get('PATH', os.defpath)}:{servers}"
    for name in _NAMES:
        if found := shutil.which(name, path=path):
            return Path(found)
    if packaged.exists():
        return packaged
    raise KrowlError(
        "there is no redis-server on PATH, by which the processes send URLs to each other: install"
        " it (Debian and Ubuntu: apt install redis-server), or crawl with one process by scrapy"
        " crawl"
    )


class PrivateRedis:
    """The server of one start, with its socket in a new folder that only its user can enter. The
    socket of the ``register`` is there too."""

    def __init__(self, program: Path, folder: Path):
        self._program = program
        self._folder = folder
        self._sockets = Path(tempfile.mkdtemp(prefix="krowl-"))
        if len(os.fsencode(self._sockets)) > _FOLDER_MAX:
            self._sockets.rmdir()
            self._sockets = Path(tempfile.mkdtemp(prefix="krowl-", dir="/tmp"))
        self._socket = self._sockets / "redis"
        self.register = self._sockets / REGISTER
        # The next start removes the folder if this one is killed.
        link = folder / SOCKETS.name
        if link.is_symlink():
            shutil.rmtree(link.readlink(), ignore_errors=True)
            link.unlink()
        link.symlink_to(self._sockets)

    def command(self) -> Sequence[str]:
        return [
            *(str(self._program), "--port", "0", "--unixsocket", str(self._socket)),
            *("--unixsocketperm", "700", "--dir", str(self._folder.resolve())),
            # A URL that it loses is sent again. A snapshot, each minute and at the end, keeps those
            # that a person has pushed.
            *("--appendonly", "no", "--save", "60 1"),
            *("--databases", str(PROCESSES_MAX)),
            *("--maxmemory-policy", "noeviction", "--loglevel", "warning"),
        ]

    def url_of(self, process: str) -> str:
        """Return the URL of the database of a process."""
        return f"unix://{self._socket}?db={number_of(process) - 1}"

    async def wait(self, is_over: Callable[[], bool]) -> None:
        """Wait until the server answers, or ``is_over`` returns true.

        :raises KrowlError: it does not answer in time, or it is over
        """
        client = redis_client(self.url_of("p1"))
        end = time.monotonic() + _PATIENCE
        async with client:
            while True:
                try:
                    await client.ping()
                except (RedisError, OSError) as error:
                    if is_over() or time.monotonic() >= end:
                        raise KrowlError(
                            f"the private Redis does not answer ({error}):"
                            f" {self._folder / LOG} has the reason"
                        ) from error
                    await asyncio.sleep(_LOOK)
                else:
                    return

    def remove_sockets(self) -> None:
        shutil.rmtree(self._sockets, ignore_errors=True)


class ProcessRegister:
    """The register in ``tree``, which is taken. ``wanted`` are the processes of this start.

    ``leaving`` are processes of earlier starts that have hosts, or may have: they hand them over.

    :raises JobError: its file cannot be read, or is not that of an earlier start
    """

    def __init__(self, tree: Tree, cluster: str, wanted: Sequence[str]):
        self._server = RegisterServer(tree.register, _write)
        self._root = f"krowlspider/{cluster}/"
        if not self._server.is_new and self._server.store.get(f"{self._root}seed") is None:
            raise JobError(
                f"{tree.register} does not have the identity seed of the cluster {cluster!r}, which"
                " each start writes: put the file back from a copy, or give KROWL_CLUSTER as the"
                " last start had it"
            )
        there = [path.name for path in process_folders(tree.path)]
        known = {each.node for each in self._below(PENDING)} | {
            each.node for each in self._below("nodes") if dead_record(each) is not None
        }
        self.leaving = [name for name in there if name in known and name not in wanted]
        self._all = [*wanted, *self.leaving]

    def _below(self, folder: str) -> Sequence[RegisterEntry]:
        return self._server.store.list(f"{self._root}{folder}/")[1]

    async def open(self, socket: Path, *, anew: bool) -> None:
        """Serve the register; ``anew``: no page of the budget is taken.

        :raises OSError: the file or the socket cannot be written
        """
        # Nobody else has a lease, so none is waited for.
        steps = [step("set", f"{self._root}founded", "1")]
        seed = f"{self._root}seed"
        if self._server.store.get(seed) is None:
            steps.append(step("set", seed, token_bytes(SEED_SIZE).hex()))
        if anew:
            steps.append(step("delete", self._root + PAGES))
        # Without processes nobody could send another signal.
        signal = self._server.store.get(self._root + SIGNAL)
        if signal is not None and signal.value.decode() == Signal.STOP:
            steps.append(step("delete", self._root + SIGNAL))
        # Nobody waits for a process whose folder a person has removed.
        gone = (each for part in ("nodes", PENDING) for each in self._below(part))
        steps += [step("delete", each.key) for each in gone if each.node not in self._all]
        # All wait for each other before they fetch, so that hosts need not move at once.
        note = msgspec.json.encode(NodeInfo())
        steps += [step("set", f"{self._root}{PENDING}/{name}", note) for name in self._all]
        self._server.store.transact(steps)
        await self._server.save()
        await self._server.open(socket)

    def close(self) -> None:
        self._server.close()

    async def end_lease(self, process: str) -> None:
        """End the lease of a process that has died: the next one takes it up at once."""
        with suppress(OSError):
            await self._server.release(process)

    def joined(self) -> set[str]:
        """Return the processes that have a lease, and have sent a heartbeat of their crawl."""
        return set(self._joined())

    def _joined(self) -> Iterator[str]:
        for entry in self._below("beats"):
            with suppress(BadRecordError):
                if entry.session and "beat" in load_counters(entry.value):
                    yield entry.node


def _write(path: Path, text: str) -> None:
    with write_durably(path) as file:
        file.write(text.encode())
