"""``scrapy frontier JOBDIR``: look into a crawl's frontier, change it by hand, repair it."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar

import plyvel
from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

from krowlspider.commands import frontiertext
from krowlspider.commands.crawl import BAD_INPUT
from krowlspider.commands.importing import import_into
from krowlspider.errors import JobError, KrowlError
from krowlspider.frontier.edit import drop_host, forget_host
from krowlspider.frontier.exchange import export_lines
from krowlspider.frontier.filterfile import FilterFile
from krowlspider.frontier.hostview import look_at_host
from krowlspider.frontier.repair import repair, way_out
from krowlspider.frontier.store import STORE_ERRORS, LevelStore
from krowlspider.frontier.view import look
from krowlspider.job import pace_rule
from krowlspider.jobfolder import JobFolder, JobInUseError, sync_folder
from krowlspider.urls.canonical import IdentityHasher, normalise
from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    import argparse

    from krowlspider.jobfolder import JobHead

# Hosts or entries in each list.
_MOST = 10
_STDIO = "-"
# Options that do more than to look at the whole.
_ACTIONS = ("host", "export", "import_file", "drop_host", "forget", "repair")


class Command(ScrapyCommand):
    requires_project = True
    requires_crawler_process = False
    default_settings: ClassVar[dict[str, Any]] = {"LOG_ENABLED": False}

    def syntax(self) -> str:
        return "<JOBDIR> [options]"

    def short_desc(self) -> str:
        return "Look into a crawl's frontier, change it, repair it"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="print JSON instead of text")
        one = parser.add_mutually_exclusive_group()
        one.add_argument("--host", metavar="NAME", help="one host, and why it is not being fetched")
        one.add_argument(
            "--export",
            metavar="FILE",
            nargs="?",
            const=_STDIO,
            help="write what is queued, one JSON line a URL, to FILE or standard output",
        )
        one.add_argument(
            "--import",
            metavar="FILE",
            dest="import_file",
            help="queue the URLs in such lines, those of standard input for -",
        )
        one.add_argument(
            "--drop-host", metavar="NAME", help="remove what a host has queued, for good"
        )
        one.add_argument(
            "--forget",
            metavar="NAME",
            help="remove all that is known of a host: it can be found anew",
        )
        one.add_argument("--repair", action="store_true", help="mend a damaged frontier")

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if len(args) != 1:
            raise UsageError("give one JOBDIR, before the options")
        folder = None
        try:
            folder = JobFolder.existing(args[0])
            self._run(folder, opts)
        except BrokenPipeError:
            # Whoever read it has read enough; nothing is to be flushed to it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except (KrowlError, OSError, *STORE_ERRORS) as error:
            where = f"{folder.frontier}: " if folder and isinstance(error, plyvel.Error) else ""
            mend = way_out(error, folder.path) if folder else ""
            print(f"krowlspider: {where}{error}{mend}", file=sys.stderr)
            self.exitcode = BAD_INPUT

    def _run(self, folder: JobFolder, opts: argparse.Namespace) -> None:
        try:
            head = folder.take()
        except JobInUseError:
            if any(getattr(opts, name) for name in _ACTIONS):
                raise
            status = folder.read_status()
            self._say(opts, {"running": status}, frontiertext.running(folder, status))
            return
        try:
            if opts.repair:
                self._repair(folder, head, opts)
            else:
                with closing(LevelStore(folder.frontier)) as store:
                    self._act(folder, head, store, opts)
        finally:
            folder.leave()

    def _repair(self, folder: JobFolder, head: JobHead, opts: argparse.Namespace) -> None:
        hasher = IdentityHasher(head.seed)
        report = repair(folder.frontier, FilterFile(folder.seen), hasher, time.time())
        self._say(opts, report.as_dict(), frontiertext.repaired(report))

    def _act(
        self, folder: JobFolder, head: JobHead, store: LevelStore, opts: argparse.Namespace
    ) -> None:
        assert self.settings is not None
        if opts.host:
            name = _host(opts.host)
            one = look_at_host(store, name, pace_rule(self.settings), time.time(), _MOST)
            self._say(opts, one.as_dict(), frontiertext.one_host(one))
        elif opts.export:
            with _opened(opts.export, "w") as file:
                file.writelines(f"{line}\n" for line in export_lines(store))
        elif opts.import_file:
            with _opened(opts.import_file, "rb") as file:
                result = import_into(folder, head, store, self.settings, file)
            self._say(opts, asdict(result), str(result))
        elif opts.drop_host:
            dropped = drop_host(store, _host(opts.drop_host))
            self._say(opts, {"dropped": dropped}, f"dropped {dropped:,} queued URLs")
        elif opts.forget:
            self._forget(folder, store, opts)
        else:
            view = look(store, pace_rule(self.settings), time.time(), _MOST)
            self._say(opts, view.as_dict(), frontiertext.whole(view))

    def _forget(self, folder: JobFolder, store: LevelStore, opts: argparse.Namespace) -> None:
        def remove_filter() -> None:
            FilterFile(folder.seen).remove()
            sync_folder(folder.path)

        marks, dropped = forget_host(store, _host(opts.forget), remove_filter)
        self._say(
            opts,
            {"seen": marks, "dropped": dropped},
            f"forgot {marks:,} URLs, {dropped:,} of them queued; the next start rebuilds the seen filter",
        )

    def _say(self, opts: argparse.Namespace, values: dict[str, object], text: str) -> None:
        print(json.dumps(values) if opts.json else text)


def _host(name: str) -> str:
    """The host of a name or a URL, as the frontier calls it."""
    url = normalise(name if "://" in name else f"http://{name}")
    if url is None:
        raise JobError(f"{name!r} is not the name of a host")
    return host_of(url)


def _opened(name: str, mode: str) -> AbstractContextManager[IO[Any]]:
    """A file, or standard input or output for "-", which stays open."""
    if name != _STDIO:
        return Path(name).open(mode)
    return nullcontext(sys.stdin.buffer if "r" in mode else sys.stdout)
