"""``scrapy frontier JOBDIR``: inspect, change or repair the frontier of a crawl."""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack, closing
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import plyvel
from scrapy.exceptions import UsageError

from krowlspider.commands.crawl import BAD_INPUT
from krowlspider.config.validation import offline, validate
from krowlspider.errors import JobError, KrowlError, counted
from krowlspider.frontier.admin.edit import drop_host, forget_host, hosts_named
from krowlspider.frontier.admin.export import Imported, export_lines, page_lines, url_items
from krowlspider.frontier.admin.repair import Repaired, gone, is_there, repair, way_out
from krowlspider.frontier.admin.view import view_frontier, view_host
from krowlspider.frontier.pages.sample import sample
from krowlspider.frontier.seen import FilterFile
from krowlspider.frontier.stopped import read_host
from krowlspider.frontier.store.store import STORE_ERRORS, LevelStore, check_owner
from krowlspider.job.folder import JobFolder, JobHead, JobInUseError, processes_in, tree_of
from krowlspider.job.forecasting import forecast_of, summed, target_of
from krowlspider.job.parts import site_policies, warc_folder
from krowlspider.job.recrawl import Afforded
from krowlspider.job.snapshots import restore, take_stopped
from krowlspider.job.status import total_status
from krowlspider.programs.program import STDIO, Program, read_lines, refuse_options, written
from krowlspider.programs.running import (
    explain_running,
    forecast_of_running,
    import_running,
    snapshot_of_running,
)
from krowlspider.programs.serving import serve
from krowlspider.programs.stopped import (
    delays_of_stopped,
    explain,
    import_into,
    is_writable,
    locked_tree,
    readable_copy,
)
from krowlspider.recrawl.forecast import TARGET
from krowlspider.urls.canonical import IdentityHasher
from krowlspider.views import frontier
from krowlspider.views.captures import epoch_of
from krowlspider.views.forecast import forecast_text
from krowlspider.views.frontier import named_host, whole_host

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from krowlspider.job.explain import Explanation

# Hosts or entries in each list.
_MOST = 10
# Options for more than an overview: what each is given, and what it does.
_ACTIONS = {
    "forecast": (
        "TARGET",
        "how fresh the pages stay by the schedule, and what the target needs: '90%% 1d' without it",
    ),
    "host": ("NAME", "one host, and why it is not being fetched"),
    "explain": ("URL", "where a URL is, and why it is not being fetched"),
    "drop-host": ("NAME", "remove the queued URLs of a host for good"),
    "forget": ("NAME", "remove all data of a host, so that it can be found again"),
    "export": ("FILE", "write the queued URLs to FILE or standard output, one JSON line each"),
    "import": (
        "FILE",
        "queue the URLs of such lines, or seeds; a running crawl takes them too; - is stdin",
    ),
    "snapshot": (
        "DIR",
        "take a snapshot of JOBDIR to the new folder DIR, while its crawl runs too",
    ),
    "restore": ("DIR", "make JOBDIR, which must not exist, of the snapshot DIR"),
    "serve": (
        "ADDRESS",
        "serve the frontier to other crawlers as a URLFrontier at HOST:PORT; JOBDIR may be new",
    ),
}
# What an option without a value is given: standard output for an export.
_USUAL = {"export": STDIO, "forecast": TARGET}
_GIVEN = {"NAME": "the name of a host", "URL": "a URL", "FILE": "a file", "DIR": "a folder"}
_GIVEN["ADDRESS"] = "HOST:PORT"
_GIVEN["TARGET"] = f"a target such as {TARGET!r}"
# What to do with one URL, which these options would take for its host.
_WAYS_FOR_PAGE = {
    "drop-host": "KROWL_EXCLUDE excludes single URLs",
    "forget": "krowl.forget() of a running crawl queues one URL again",
    "host": "--explain tells of single URLs",
}
# The options that change the folder, or need to write in it.
_CHANGES = ("import", "drop-host", "forget", "snapshot", "restore")
_FORMATS = ("krowlspider", "urlfrontier")
# What cannot be done in the folder of `scrapy node`, and what can be done instead.
_NOT_FOR_TREE = {
    "import": "import while the crawl runs: each line goes to the process that owns its host",
    "snapshot": "stop the crawl, and copy the whole folder",
    "serve": "export the URLs of each process, and import them into a new JOBDIR",
}
# States of a URL of which another process may know more, the one that knows least first.
_LEAST_KNOWN = ("foreign", "unknown", "refused")


class _Part(NamedTuple):
    """The frontier of a process, open: nearly all crawls have one."""

    folder: JobFolder
    head: JobHead
    store: LevelStore


class Command(Program):
    def syntax(self) -> str:
        return "<JOBDIR> [options]"

    def short_desc(self) -> str:
        return "Look into a crawl's frontier, change it, repair it"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="print JSON instead of text")
        parser.add_argument(
            "--format",
            choices=_FORMATS,
            help="of the lines of --export: for --import (default), or for PutURLs of URLFrontier",
        )
        one = parser.add_mutually_exclusive_group()
        for name, (kind, text) in _ACTIONS.items():
            optional: dict[str, Any] = {"nargs": "?"} if name in _USUAL else {}
            optional |= {"const": _USUAL.get(name)} if optional else {}
            one.add_argument(f"--{name}", metavar=kind, dest=name, help=text, **optional)
        one.add_argument("--repair", action="store_true", help="mend a damaged frontier")
        parser.add_argument(
            "--pages",
            action="store_true",
            help="print the pages that were fetched, one JSON line each, or those of --host",
        )
        parser.add_argument(
            "--status", type=int, metavar="CODE", help="of --pages: only those with this status"
        )
        parser.add_argument(
            "--since",
            metavar="DATE",
            help="of --pages: only those fetched on this date in UTC or later: 2026-01-31",
        )

    def act(self, args: list[str], opts: argparse.Namespace) -> None:
        self._check(args, opts)
        path = Path(args[0])
        if opts.serve:
            if tree_of(path) is not None:
                raise _not_for_tree("serve")
            self.exitcode = serve(args[0], opts.serve, self.settings, self.say)
            return
        folders = [] if opts.restore else processes_in(path) or [JobFolder.existing(args[0])]
        tree = tree_of(path)
        changes = any(getattr(opts, name) for name in (*_CHANGES, "repair"))
        try:
            with ExitStack() as stack:
                if tree is not None:
                    self._lock_tree(tree, stack, opts, to_change=changes)
                if opts.restore:
                    self._restore(Path(opts.restore), path, opts)
                    return
                if opts.repair and path == tree:
                    self._repair_each(folders, opts)
                    return
                # The sums would be without a process that has lost its head.
                parts = [JobFolder.existing(str(folder.path)) for folder in folders]
                if not changes:
                    parts = [
                        each
                        if is_writable(each.path)
                        else stack.enter_context(readable_copy(each.path))
                        for each in parts
                    ]
                self._run(parts, opts)
        except JobInUseError as error:
            self._ask_running(error, path, folders, opts)

    def _check(self, args: list[str], opts: argparse.Namespace) -> None:
        """Check the command line and the settings, and adapt the settings to this command.

        :raises KrowlError: the command line or a setting is wrong
        :raises UsageError: there is not exactly one JOBDIR
        """
        refuse_options("frontier", args)
        if len(args) != 1:
            raise UsageError("give one JOBDIR, before the options")
        for name, (kind, _) in _ACTIONS.items():
            if getattr(opts, name) == "":
                raise KrowlError(f"--{name} is given an empty name: give {_GIVEN[kind]}")
        if opts.format and not opts.export:
            raise KrowlError("--format is for --export: give both, or neither")
        if not opts.pages and (opts.status is not None or opts.since):
            raise KrowlError("--status and --since are for --pages: give that too")
        others = [name for name in (*_ACTIONS, "repair") if name != "host" and vars(opts)[name]]
        if opts.pages and others:
            raise KrowlError(f"--pages and --{others[0]} do not go together: give one of them")
        if opts.forecast:
            target_of(opts.forecast)
        validate(offline(self.settings))

    def _lock_tree(
        self, tree: Path, stack: ExitStack, opts: argparse.Namespace, *, to_change: bool
    ) -> None:
        """Lock the folder of `scrapy node`.

        :raises JobError: it is in use, or this is not for such a folder
        """
        if opts.snapshot:
            raise _not_for_tree("snapshot")
        # A process that has died is started again: its folder is free only for seconds.
        stack.enter_context(locked_tree(tree, to_change=to_change))
        if vars(opts)["import"]:
            raise _not_for_tree("import")

    def _run(self, folders: list[JobFolder], opts: argparse.Namespace) -> None:
        """Do what is asked; each folder has a part of the frontier.

        :raises JobInUseError: a crawl uses one of them
        """
        folder = folders[0]
        parts: list[_Part] = []
        try:
            with ExitStack() as stack:
                for folder in folders:
                    if opts.repair:
                        self._repair(folder, opts)
                        continue
                    head = folder.take()
                    stack.callback(folder.leave)
                    if not is_there(folder.frontier):
                        raise JobError(gone(folder.path))
                    store = stack.enter_context(closing(LevelStore(folder.frontier)))
                    check_owner(store, head.seed, head.ring)
                    parts.append(_Part(folder, head, store))
                if parts:
                    self._act(parts, opts)
        except JobInUseError:
            raise
        except (KrowlError, *STORE_ERRORS) as error:
            self.complain(*self._failure_in(folder, error))

    def _ask_running(
        self,
        error: JobInUseError,
        path: Path,
        folders: Sequence[JobFolder],
        opts: argparse.Namespace,
    ) -> None:
        """Ask the crawl that uses the folders, as far as it answers."""
        if opts.snapshot:
            text = snapshot_of_running(error, Path(opts.snapshot), self.settings)
            self._say(opts, {"snapshot": opts.snapshot, "running": True}, text)
        elif opts.explain:
            # The process that owns the host answers.
            self._say_explained(opts, explain_running(error, opts.explain))
        elif opts.forecast:
            self._forecast_running(error, path, folders, opts)
        elif given := vars(opts)["import"]:
            self._say_imported(opts, import_running(error, given, self.settings))
        elif any(getattr(opts, name) for name in (*_ACTIONS, "repair", "pages")):
            # The other options would change the folder of a crawl that runs, or read all of it.
            raise JobError(
                f"JOBDIR {error.path} is in use by process {error.holder}: stop it first"
            ) from error
        elif folders[0].path == path:
            status = folders[0].read_status()
            self._say(opts, {"running": status}, frontier.running(path, status))
        else:
            each = {folder.path.name: folder.read_status() for folder in folders}
            known = {name: status for name, status in each.items() if status is not None}
            total = total_status(known) if known else None
            shown = {path: total, **{path / name: status for name, status in each.items()}}
            text = "\n".join(frontier.running(*one) for one in shown.items())
            self._say(opts, {"running": {"total": total, **each}}, text)

    def _forecast_running(
        self,
        error: JobInUseError,
        path: Path,
        folders: Sequence[JobFolder],
        opts: argparse.Namespace,
    ) -> None:
        """Say the forecast of the crawl that uses the folders; of several processes that of all
        together, and that of each, as each has its own hosts and its own budget."""
        found = {
            folder.path.name: forecast_of_running(
                JobInUseError(folder.path, error.holder), opts.forecast
            )
            for folder in folders
        }
        texts = {name: forecast_text(each) for name, each in found.items()}
        if folders[0].path == path:
            name = path.name
            self._say(opts, asdict(found[name]), texts[name])
        else:
            found = {"total": summed(list(found.values())), **found}
            texts = {"total": forecast_text(found["total"]), **texts}
            text = "\n\n".join(f"{name}\n{each}" for name, each in texts.items())
            self._say(opts, {name: asdict(each) for name, each in found.items()}, text)

    def _failure_in(self, folder: JobFolder, error: Exception) -> tuple[str, int]:
        """Return the line for an error with a folder, and the exit code."""
        text, code = self.failure(error)
        where = f"{folder.frontier}: " if isinstance(error, plyvel.Error) else ""
        return f"{where}{text}{way_out(error, folder.path)}", code

    def _repair(self, folder: JobFolder, opts: argparse.Namespace) -> None:
        report = _mended(folder)
        self._say(opts, asdict(report), frontier.repaired(report, folder.path))
        if report.empty:
            self.exitcode = BAD_INPUT

    def _repair_each(self, folders: Sequence[JobFolder], opts: argparse.Namespace) -> None:
        """Repair the frontier of each process, whatever becomes of the others."""
        values: dict[str, object] = {}
        lines, worst = [], 0
        for folder in folders:
            name = folder.path.name
            try:
                report = _mended(folder)
            except (KrowlError, *STORE_ERRORS) as error:
                text, code = self._failure_in(folder, error)
                self.complain(f"{name}: {text}", code)
                values[name] = {"error": text}
            else:
                code = BAD_INPUT if report.empty else 0
                text = frontier.repaired(report, folder.path)
                lines += [f"{name}: {line}" for line in text.splitlines()]
                values[name] = asdict(report)
            worst = max(worst, code)
        if lines or opts.json:
            self._say(opts, values, "\n".join(lines))
        self.exitcode = worst

    def _restore(self, snapshot: Path, jobdir: Path, opts: argparse.Namespace) -> None:
        made = restore(snapshot, jobdir)
        text = frontier.restored(made, self.settings["KROWL_WARC_DIR"])
        self._say(opts, {"restored": asdict(made)}, text)

    def _act(self, parts: Sequence[_Part], opts: argparse.Namespace) -> None:
        folder, head, store = parts[0]
        stores = [part.store for part in parts]
        policy, now = partial(delays_of_stopped, head, self.settings), time.time()
        # Text below the delays, if they are not those of the crawl.
        note = "" if head.delays else frontier.DELAYS_OF_COMMAND
        given = vars(opts)
        if opts.pages:
            self._print_pages(stores, opts)
        elif given["forecast"]:
            rule = policy()
            sampled = [
                each
                for store in stores
                for each in sample(store, lambda host: rule.of(host.name).delay(host.rate))
            ]
            forecast = forecast_of(
                sampled, Afforded.by(self.settings), target_of(given["forecast"])
            )
            self._say(opts, asdict(forecast), forecast_text(forecast) + note)
        elif given["host"]:
            name = named_host(given["host"])
            sheets = site_policies(self.settings)
            policies = None if sheets is None else sheets.policies
            views = [
                view_host(part.store, name, policy(), now, most=_MOST, policies=policies)
                for part in _that_know(parts, name)
            ]
            one = max(views, key=lambda view: (view.host.queued, view.host.done))
            fields = asdict(one)
            self._say(opts, {**fields, **fields["host"]}, frontier.one_host(one) + note)
        elif given["explain"]:
            url = given["explain"]
            found = [explain(*part, self.settings, url) for part in parts]
            self._say_explained(opts, max(found, key=_how_known))
        elif given["export"]:
            self._export(stores, opts, now)
        elif given["import"]:
            lines = read_lines(given["import"])
            self._say_imported(opts, import_into(folder, head, store, self.settings, lines))
        elif given["drop-host"]:
            hosts = _hosts_of(stores, given["drop-host"], "drop-host")
            dropped = sum(
                drop_host(part.store, host) for host in hosts for part in _that_know(parts, host)
            )
            text = f"dropped {counted(dropped, 'queued URL')} of {', '.join(hosts)}"
            self._say(opts, {"dropped": dropped, "hosts": hosts}, text)
        elif given["forget"]:
            hosts = _hosts_of(stores, given["forget"], "forget")
            forgotten = [
                forget_host(part.store, host, FilterFile(part.folder.seen).remove)
                for host in hosts
                for part in _that_know(parts, host)
            ]
            seen, dropped = (sum(counts) for counts in zip(*forgotten, strict=True))
            text = f"forgot {counted(seen, 'URL')} of {', '.join(hosts)}, {dropped:,} of them"
            text += " queued; the next start rebuilds the seen filter"
            self._say(opts, {"seen": seen, "dropped": dropped, "hosts": hosts}, text)
        elif given["snapshot"]:
            archive = warc_folder(self.settings, folder.path)
            taken = take_stopped(folder, store, archive, Path(given["snapshot"]))
            values = {"snapshot": taken.folder, "running": False}
            self._say(opts, values, frontier.snapshot_taken(taken))
        else:
            view = view_frontier(stores, policy(), now, _MOST)
            self._say(opts, asdict(view), frontier.whole(view) + note)

    def _print_pages(self, stores: Sequence[LevelStore], opts: argparse.Namespace) -> None:
        since = epoch_of(opts.since) if opts.since else 0.0
        hosts = _hosts_of(stores, opts.host, "host") if opts.host else [None]
        left_out = 0
        with written(STDIO) as file:
            for store in stores:
                for host in hosts:
                    for line in page_lines(store, host, opts.status, since):
                        if line is None:
                            left_out += 1
                        else:
                            file.write(f"{line}\n")
        if left_out:
            print(frontier.unread_rows(left_out), file=sys.stderr)

    def _export(self, stores: Sequence[LevelStore], opts: argparse.Namespace, now: float) -> None:
        is_foreign = opts.format == "urlfrontier"
        lines: Iterator[str | None] = chain.from_iterable(
            url_items(store, now) if is_foreign else export_lines(store) for store in stores
        )
        count = left_out = 0
        with written(opts.export) as file:
            for line in lines:
                if line is None:
                    left_out += 1
                else:
                    count += 1
                    file.write(f"{line}\n")
        print(frontier.exported(count, left_out), file=sys.stderr)

    def _say_imported(self, opts: argparse.Namespace, result: Imported) -> None:
        self._say(opts, asdict(result), frontier.imported(result))
        if result.useless:
            self.exitcode = BAD_INPUT

    def _say_explained(self, opts: argparse.Namespace, found: Explanation) -> None:
        self._say(opts, asdict(found), frontier.explained(found))
        if found.state == "invalid":
            self.exitcode = BAD_INPUT

    def _say(self, opts: argparse.Namespace, values: dict[str, object], text: str) -> None:
        self.say(json.dumps(values) if opts.json else text)


def _mended(folder: JobFolder) -> Repaired:
    """Repair the frontier in a folder.

    :raises JobError: the folder is in use, or cannot be used
    :raises StoreError: as of `repair`
    """
    head = folder.take(to_repair=True)
    try:
        hasher = IdentityHasher(head.seed)
        return repair(folder.frontier, FilterFile(folder.seen), hasher, time.time())
    finally:
        folder.leave()


def _not_for_tree(option: str) -> JobError:
    return JobError(f"--{option} is not for a crawl of scrapy node: {_NOT_FOR_TREE[option]}")


def _hosts_of(stores: Sequence[LevelStore], name: str, option: str) -> list[str]:
    """Return the hosts that a name covers: at all ports, or at the one given."""
    whole = whole_host(name, _WAYS_FOR_PAGE[option])
    found = sorted({host for store in stores for host in hosts_named(store, whole)})
    return found or [named_host(name)]


def _that_know(parts: Sequence[_Part], host: str) -> Sequence[_Part]:
    """Return the parts that have a host; the first one if none has, for its error."""
    return [part for part in parts if read_host(part.store, host)] or parts[:1]


def _how_known(found: Explanation) -> int:
    if found.state in _LEAST_KNOWN:
        return _LEAST_KNOWN.index(found.state)
    return len(_LEAST_KNOWN)
