"""The worker processes, and which page killed one."""

from __future__ import annotations

import multiprocessing
import signal
from dataclasses import dataclass
from multiprocessing import connection
from typing import TYPE_CHECKING, Any, NamedTuple

from krowlspider.corpus.folder import Fatal, Slice, Summary
from krowlspider.corpus.worker import Job, Task, work
from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.process import BaseProcess

# A place before the first page of a task.
_NOWHERE = -1
# fork would copy the parent's threads and its LevelDB.
_CONTEXT = multiprocessing.get_context("spawn")


@dataclass(slots=True, eq=False)
class _Worker:
    process: BaseProcess
    pipe: connection.Connection
    place: Any
    task: Task | None = None
    start: int = 0


class Scanned(NamedTuple):
    """A worker has written the findings in a WARC file."""

    file: str


class Pool:
    """Runs tasks in up to ``processes`` workers, each of which is replaced when it dies."""

    def __init__(self, job: Job, processes: int):
        self._job = job
        self._workers = [self._started() for _ in range(processes)]

    def _started(self) -> _Worker:
        ours, theirs = _CONTEXT.Pipe()
        place = _CONTEXT.RawArray("q", (_NOWHERE, 0))
        process = _CONTEXT.Process(target=work, args=(theirs, place, self._job), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours, place)

    @property
    def has_room(self) -> bool:
        return any(worker.task is None for worker in self._workers)

    def give(self, task: Task) -> None:
        """Give a task to a worker that has none."""
        worker = next(worker for worker in self._workers if worker.task is None)
        worker.place[:] = _NOWHERE, 0
        worker.task, worker.start = task, task.start
        worker.pipe.send(task)

    def bytes_read(self) -> int:
        """Return how many bytes have been read of the files that workers are reading."""
        reading = (each for each in self._workers if each.task is not None and not each.task.scan)
        return sum(max(worker.place[0], 0) for worker in reading)

    def wait(self, seconds: float) -> Iterator[tuple[Slice, Summary] | Fatal | Scanned]:
        """Yield finished slices and scans, and pages that killed a worker, after a wait for any.

        After a `Fatal`, the file must be given again: its slice was lost. Raises OSError.

        :raises KrowlError: a worker died before its first page
        """
        busy = {worker.pipe: worker for worker in self._workers if worker.task is not None}
        for pipe in connection.wait(list(busy), seconds):
            worker = busy[pipe]  # type: ignore[index]
            try:
                message = worker.pipe.recv()
            except (EOFError, ConnectionResetError):
                yield self._died(worker)
                continue
            assert worker.task is not None
            if message is None:
                if worker.task.scan:
                    yield Scanned(worker.task.path.name)
                worker.task = None
            elif isinstance(message, OSError):
                raise message
            else:
                start, summary = message
                worker.start = summary.following or 0
                yield Slice(worker.task.path.name, start), summary

    def _died(self, worker: _Worker) -> Fatal:
        worker.process.join()
        code = worker.process.exitcode or 0
        task = worker.task
        assert task is not None
        if worker.place[0] == _NOWHERE:
            raise KrowlError(f"a worker died at {task.path.name} (exit code {code})")
        reason = "took too long" if code == -signal.SIGPROF else f"crash, exit code {code}"
        offset, number = worker.place
        self._workers[self._workers.index(worker)] = self._started()
        return Fatal(task.path.name, worker.start, number, offset, reason)

    def close(self) -> None:
        """Kill the workers: what they had not handed over is read again the next time."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
