"""``scrapy frontier JOBDIR``: inspect, change or repair the frontier of a crawl."""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, ClassVar

import plyvel
from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

from krowlspider.commands.crawl import BAD_INPUT, STORAGE_FAILED
from krowlspider.commands.importing import import_into
from krowlspider.config.validation import validate_offline
from krowlspider.crawl.folder import JobFolder, JobInUseError, sync_folder
from krowlspider.crawl.parts import delay_policy
from krowlspider.errors import JobError, KrowlError, error_text, for_want_of_room
from krowlspider.frontier.admin.edit import drop_host, forget_host
from krowlspider.frontier.admin.export import export_lines
from krowlspider.frontier.admin.host_view import look_at_host
from krowlspider.frontier.admin.repair import gone, is_there, repair, way_out
from krowlspider.frontier.admin.view import look
from krowlspider.frontier.seen.filter_file import FilterFile
from krowlspider.frontier.store.owner import check_owner
from krowlspider.frontier.store.store import STORE_ERRORS, LevelStore, StoreError
from krowlspider.urls.canonical import IdentityHasher, normalise
from krowlspider.urls.host import host_of
from krowlspider.views import frontier
from krowlspider.views.files import STDIO, drop_output, read_lines, written

if TYPE_CHECKING:
    import argparse

    from krowlspider.crawl.folder import JobHead

# Hosts or entries in each list.
_MOST = 10
# Options whose value is a file.
_FILES = ("export", "import_file")
# Options for more than an overview; they cannot be used while a crawl runs.
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
            const=STDIO,
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
        folder = None
        try:
            self._check(args, opts)
            folder = JobFolder.existing(args[0])
            self._run(folder, opts)
        except BrokenPipeError:
            # The reader of the output has closed it.
            drop_output()
        except (KrowlError, OSError, *STORE_ERRORS) as error:
            where = f"{folder.frontier}: " if folder and isinstance(error, plyvel.Error) else ""
            full = _is_full(error)
            way = way_out(error, folder.path) if folder else ""
            if full and not isinstance(error, StoreError):
                way = ": make room on its disk, and do it again"
            print(f"krowlspider: {where}{error_text(error)}{way}", file=sys.stderr)
            self.exitcode = STORAGE_FAILED if full else BAD_INPUT

    def _check(self, args: list[str], opts: argparse.Namespace) -> None:
        """:raises KrowlError: the command line or a setting is wrong
        :raises UsageError: there is not exactly one JOBDIR
        """
        for name in args:
            if name.startswith("-"):
                raise KrowlError(
                    f"{name.partition('=')[0]} is not an option: scrapy frontier --help lists them"
                )
        if len(args) != 1:
            raise UsageError("give one JOBDIR, before the options")
        for name in _ACTIONS:
            if getattr(opts, name) == "":
                option = "--" + name.removesuffix("_file").replace("_", "-")
                wanted = "a file" if name in _FILES else "the name of a host"
                raise KrowlError(f"{option} is given an empty name: give {wanted}")
        assert self.settings is not None
        validate_offline(self.settings)

    def _run(self, folder: JobFolder, opts: argparse.Namespace) -> None:
        try:
            head = folder.take(to_repair=opts.repair)
        except JobInUseError as error:
            if any(getattr(opts, name) for name in _ACTIONS):
                raise JobError(
                    f"JOBDIR {error.path} is in use by process {error.holder}: stop it first"
                ) from error
            status = folder.read_status()
            self._say(opts, {"running": status}, frontier.running(folder, status))
            return
        try:
            if opts.repair:
                self._repair(folder, head, opts)
            elif not is_there(folder.frontier):
                raise JobError(gone(folder.path))
            else:
                with closing(LevelStore(folder.frontier)) as store:
                    check_owner(store, head.seed, head.ring)
                    self._act(folder, head, store, opts)
        finally:
            folder.leave()

    def _repair(self, folder: JobFolder, head: JobHead, opts: argparse.Namespace) -> None:
        hasher = IdentityHasher(head.seed)
        report = repair(folder.frontier, FilterFile(folder.seen), hasher, time.time())
        self._say(opts, report.as_dict(), frontier.repaired(report, folder.path))
        if report.empty:
            self.exitcode = BAD_INPUT

    def _act(
        self, folder: JobFolder, head: JobHead, store: LevelStore, opts: argparse.Namespace
    ) -> None:
        assert self.settings is not None
        if opts.host:
            name = _host(opts.host)
            one = look_at_host(store, name, delay_policy(self.settings), time.time(), _MOST)
            self._say(opts, one.as_dict(), frontier.one_host(one))
        elif opts.export:
            count = 0
            with written(opts.export) as file:
                for count, line in enumerate(export_lines(store), 1):  # noqa: B007
                    file.write(f"{line}\n")
            print(f"{count:,} URLs written", file=sys.stderr)
        elif opts.import_file:
            lines = read_lines(opts.import_file)
            result = import_into(folder, head, store, self.settings, lines)
            self._say(opts, result.as_dict(), str(result))
            if result.useless:
                self.exitcode = BAD_INPUT
        elif opts.drop_host:
            dropped = drop_host(store, _host(opts.drop_host))
            self._say(opts, {"dropped": dropped}, f"dropped {dropped:,} queued URLs")
        elif opts.forget:
            self._forget(folder, store, opts)
        else:
            view = look(store, delay_policy(self.settings), time.time(), _MOST)
            self._say(opts, view.as_dict(), frontier.whole(view))

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
        with written(STDIO) as file:
            print(json.dumps(values) if opts.json else text, file=file)


def _host(name: str) -> str:
    """Return the host of a name or a URL, as written in the frontier.

    :raises JobError: ``name`` is not the name of a host
    """
    url = normalise(name if "://" in name else f"http://{name}")
    if url is None:
        raise JobError(f"{name!r} is not the name of a host")
    return host_of(url)


def _is_full(error: BaseException) -> bool:
    """Return whether the disk had no room for the frontier."""
    return not isinstance(error, KrowlError) and for_want_of_room(error)
