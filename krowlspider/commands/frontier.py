"""``scrapy frontier JOBDIR``: what is in a crawl's frontier."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any, ClassVar

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

from extensions.status import LINE
from krowlspider.commands.crawl import BAD_INPUT
from krowlspider.errors import KrowlError
from krowlspider.frontier.store import STORE_ERRORS, LevelStore
from krowlspider.frontier.view import FrontierView, HostLine, look
from krowlspider.job import pace_rule
from krowlspider.jobfolder import JobFolder, JobInUseError

if TYPE_CHECKING:
    import argparse

# Hosts in each list.
_MOST = 10


class Command(ScrapyCommand):
    requires_project = True
    requires_crawler_process = False
    default_settings: ClassVar[dict[str, Any]] = {"LOG_ENABLED": False}

    def syntax(self) -> str:
        return "[--json] <JOBDIR>"

    def short_desc(self) -> str:
        return "Show what is in a crawl's frontier"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="print JSON instead of tables")

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if len(args) != 1:
            raise UsageError("give one JOBDIR")
        try:
            self._show(JobFolder.existing(args[0]), as_json=opts.json)
        except (KrowlError, *STORE_ERRORS) as error:
            print(f"krowlspider: {error}", file=sys.stderr)
            self.exitcode = BAD_INPUT

    def _show(self, folder: JobFolder, *, as_json: bool) -> None:
        assert self.settings is not None
        try:
            folder.take()
        except JobInUseError:
            status = folder.read_status()
            print(json.dumps({"running": status}) if as_json else _running(folder, status))
            return
        try:
            store = LevelStore(folder.frontier)
            try:
                view = look(store, pace_rule(self.settings), time.time(), _MOST)
            finally:
                store.close()
        finally:
            folder.leave()
        print(json.dumps(view.as_dict()) if as_json else "\n".join(_tables(view)))


def _running(folder: JobFolder, status: dict[str, object] | None) -> str:
    if status is None:
        return f"{folder.path} is being crawled; it has no figures yet"
    age = time.time() - float(str(status["time"]))
    return (
        f"{folder.path} is being crawled; its last status line, {age:.0f} s ago:\n{LINE % status}"
    )


def _tables(view: FrontierView) -> list[str]:
    dropped = ", ".join(f"{reason}: {count:,}" for reason, count in view.dropped.items())
    return [
        f"hosts    {view.hosts:,}" + (f" ({view.put_off:,} put off)" if view.put_off else ""),
        f"queued   {view.queued:,}",
        f"done     {view.done:,}",
        f"dropped  {sum(view.dropped.values()):,}" + (f" ({dropped})" if dropped else ""),
        *_table("most queued", view.biggest),
        *_table("slowest", view.slowest),
        *_table("due next", view.next_due),
    ]


def _table(title: str, lines: list[HostLine]) -> list[str]:
    if not lines:
        return []
    head = f"{'queued':>9} {'done':>9} {'dropped':>8} {'delay s':>8} {'due in s':>9} {'errors':>6}  host"
    return ["", title, head] + [
        f"{line.queued:>9,} {line.done:>9,} {line.dropped:>8,} {line.delay:>8.2f} {line.due_in:>9.1f}"
        f" {line.errors:>6}  {line.host}{' (put off)' if line.put_off else ''}"
        for line in lines
    ]
