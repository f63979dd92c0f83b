"""Extension: send notices to KROWL_NOTIFY: the end of the crawl, and what holds it up."""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import subprocess
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import create_looping_call, run_in_thread

from krowlspider.engine.scheduler import Scheduler
from krowlspider.errors import counted
from krowlspider.job.crawls import Crawl, crawl_of
from krowlspider.job.status import pause_reason
from krowlspider.job.webhook import NotSentError, Webhook

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Self

    from scrapy.crawler import Crawler

# Seconds without the end of a request, though hosts are due, after which a crawl counts as stalled.
# A request lasts DOWNLOAD_TIMEOUT, a minute, at most.
PATIENCE = 600.0
# Seconds before an event is reported again.
_AGAIN = 300.0

logger = logging.getLogger(__name__)

# Seconds for one notice, and notices that wait: the others are dropped, with a log line.
TIME_LIMIT = 10.0
_WAITING = 20


class Notice(NamedTuple):
    """An event: its name, for programs, and a sentence for people."""

    name: str
    message: str


class Condition(Struct, frozen=True):
    """The condition of a crawl. ``ended`` counts requests that have ended since the start, ``due``
    hosts that are due. ``paused`` is the reason for which no request is sent, "" for none. ``full``
    is a folder without room, ``dead`` has the nodes that have died. ``outage`` says what does not
    work that all requests need; "" for nothing."""

    ended: int
    due: int
    paused: str
    full: Path | None
    outage: str
    dead: frozenset[str] = frozenset()


class ConditionWatch:
    """Compares conditions, the first one at ``now`` in monotonic seconds.

    A crawl is stalled if no request has ended for PATIENCE seconds although hosts are due and
    the crawl is not paused. Each event is reported at most every five minutes.
    """

    def __init__(self, now: float):
        self._last = Condition(ended=-1, due=0, paused="", full=None, outage="")
        self._moved_at = now
        self._is_stalled = False
        self._reported: dict[str, float] = {}

    def look(self, now: float, found: Condition) -> list[Notice]:
        """Return the events that this condition is the first to show."""
        events = []
        last, self._last = self._last, found
        if found.full is not None and last.full is None:
            text = f"No room in {found.full}: the crawl is paused until there is some"
            events.append(Notice("disk_floor", text))
        if found.outage and not last.outage:
            text = f"The crawl is paused until hosts answer again: {found.outage}"
            events.append(Notice("no_network", text))
        if lost := found.dead - last.dead:
            text = f"Nodes have died, with URLs on their disks: {', '.join(sorted(lost))}"
            events.append(Notice("node_lost", text))
        if self._stalls(now, found, has_moved=found.ended != last.ended):
            text = f"No request has ended for {PATIENCE / 60:g} min, though hosts are due"
            events.append(Notice("stalled", text))
        return [event for event in events if self._may_report(event.name, now)]

    def _stalls(self, now: float, found: Condition, *, has_moved: bool) -> bool:
        """Return whether the crawl is stalled, and was not at the last look."""
        if has_moved or not found.due or found.paused:
            self._moved_at, self._is_stalled = now, False
            return False
        before, self._is_stalled = self._is_stalled, now - self._moved_at >= PATIENCE
        return self._is_stalled and not before

    def _may_report(self, name: str, now: float) -> bool:
        if now - self._reported.get(name, -_AGAIN) < _AGAIN:
            return False
        self._reported[name] = now
        return True


class Sender:
    """Sends notices one after the other to ``target``: an http or https URL, or a command.

    The command gets the notice on its standard input, the URL as the body of a POST. Errors are
    logged, without the URL, which may have a secret.
    """

    def __init__(self, target: str, time_limit: float = TIME_LIMIT):
        self._send: Callable[[bytes], None]
        self._command: _Command | None = None
        if target.startswith(("http://", "https://")):
            self._send = Webhook(target, time_limit).send
        else:
            self._command = _Command(target, time_limit)
            self._send = self._command.send
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._is_given_up = False
        # A daemon: the end of the process does not wait for it.
        self._thread = Thread(target=self._work, name="notices", daemon=True)
        self._thread.start()

    def send(self, notice: Mapping[str, Any]) -> None:
        """Send a notice; return immediately."""
        if self._queue.qsize() >= _WAITING:
            logger.warning("KROWL_NOTIFY: %s is not sent: others wait", notice["event"])
            return
        self._queue.put(json.dumps(notice).encode())

    def close(self, wait: float) -> None:
        """Wait for the notices under way for at most ``wait`` seconds, then give them up.

        This blocks: call it in a thread.
        """
        self._queue.put(None)
        self._thread.join(wait)
        if self._thread.is_alive():
            logger.warning("KROWL_NOTIFY: the last notice was not taken within %.0f s", wait)
            self._is_given_up = True
            if self._command is not None:
                self._command.end()

    def _work(self) -> None:
        while (notice := self._queue.get()) is not None and not self._is_given_up:
            try:
                self._send(notice)
            except NotSentError as error:
                if not self._is_given_up:
                    logger.warning("KROWL_NOTIFY: a notice was not sent: %s", error)


class _Command:
    def __init__(self, command: str, time_limit: float):
        self._words = shlex.split(command)
        self._time_limit = time_limit
        self._child: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def send(self, notice: bytes) -> None:
        none = subprocess.DEVNULL
        try:
            # A session of its own, so that all that it starts can be killed with it.
            self._child = child = subprocess.Popen(  # noqa: S603 - the operator's own command
                self._words, stdin=subprocess.PIPE, stdout=none, stderr=none, start_new_session=True
            )
        except OSError as error:
            raise NotSentError(f"{self._words[0]}: {error.strerror}") from error
        if self._is_over:
            self._kill()
        try:
            child.communicate(notice, timeout=self._time_limit)
        except subprocess.TimeoutExpired:
            self._kill()
            child.wait()
            raise NotSentError(f"{self._words[0]} ran for {self._time_limit:.0f} s") from None
        finally:
            self._child = None
        if child.returncode:
            raise NotSentError(f"{self._words[0]} ended with code {child.returncode}")

    def end(self) -> None:
        """Kill the command that runs, and each one that is started from now on."""
        self._is_over = True
        self._kill()

    def _kill(self) -> None:
        if (child := self._child) is not None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


# Seconds between two looks, and seconds that the end of the crawl waits for the last notice.
INTERVAL = 2.0
_LAST = 4.0


class Notify:
    """Looks at the crawl every two seconds, and sends a notice of each event.

    :raises NotConfigured: KROWL_NOTIFY is not set
    """

    def __init__(self, crawler: Crawler):
        if not crawler.settings["KROWL_NOTIFY"]:
            raise NotConfigured
        self._crawler = crawler
        self._notifier: Notifier | None = None
        crawler.signals.connect(self._start, signals.engine_started)
        # After the scheduler's close: nothing more is fetched or lost.
        crawler.signals.connect(self._finish, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        settings, stats = self._crawler.settings, self._crawler.stats
        self._notifier = Notifier(
            crawl_of(self._crawler),
            settings["KROWL_NOTIFY"],
            counted=Scheduler.of(self._crawler).counted,
            ended=lambda: stats.get_value("downloader/request_count", 0),
        )
        self._call = create_looping_call(self._notifier.look)
        self._call.start(INTERVAL, now=False)

    async def _finish(self, reason: str) -> None:
        if self._notifier is None:
            return
        self._call.stop()
        self._notifier.end(reason)
        await run_in_thread(self._notifier.close)


class Notifier:
    """Sends notices of an open job to ``target``, as `Sender`.

    ``counted`` returns what the frontier has counted since the start, and ``ended`` the number of
    requests that have ended.
    """

    def __init__(
        self,
        crawl: Crawl,
        target: str,
        *,
        counted: Callable[[], Counter[str]],
        ended: Callable[[], int],
    ):
        self._crawl = crawl
        self._job = crawl.job
        self._sender = Sender(target)
        self._watch = ConditionWatch(crawl.job.monotonic())
        self._counted = counted
        self._ended = ended

    def look(self) -> None:
        """Send a notice of each event that has begun. Call it every `INTERVAL` seconds."""
        job, node = self._job, self._crawl.node
        found = Condition(
            ended=self._ended(),
            due=job.frontier.schedule.count_due(),
            paused=pause_reason(self._crawl),
            full=job.full,
            outage=job.outages.what if job.outages.is_out else "",
            dead=node.dead_nodes if node is not None and node.running else frozenset(),
        )
        for event in self._watch.look(job.monotonic(), found):
            self._send(event)

    def end(self, reason: str) -> None:
        """Send the last notice: the crawl has ended for a reason."""
        job = self._job
        left = job.frontier.pending
        message = f"{job.spider} has ended ({reason}), with {counted(left, 'URL')} left"
        is_finished = reason == "finished" and job.failure is None
        self._send(Notice("finished" if is_finished else "stopped", message))

    def close(self) -> None:
        """Wait some seconds for the notices under way. This blocks: call it in a thread."""
        self._sender.close(_LAST)

    def _send(self, event: Notice) -> None:
        job, counted = self._job, self._counted()
        figures: dict[str, Any] = {
            "seconds": round(job.wall() - job.began),
            "done": counted["done"],
            "dropped": sum(n for name, n in counted.items() if name.startswith("dropped/")),
            "queued": job.frontier.queued,
            "hosts": job.frontier.schedule.host_count,
        }
        crawl = {"spider": job.spider, "folder": str(job.folder.path)}
        if (node := self._crawl.node) is not None:
            crawl["node"] = node.own
        notice = {"event": event.name, "message": event.message, "time": round(job.wall())}
        self._sender.send({**notice, "crawl": crawl, "figures": figures})
