"""``scrapy node``: a crawl of several processes on this machine, as one."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.commands.crawl import BAD_INPUT, STORAGE_FAILED, log_exit
from krowlspider.commands.crawl import Command as CrawlCommand
from krowlspider.config.validation import name_jobdir
from krowlspider.errors import KrowlError, SettingsError, error_text, for_want_of_room

if TYPE_CHECKING:
    import argparse


class Command(CrawlCommand):
    requires_crawler_process = False

    def syntax(self) -> str:
        return "[options] [spider]"

    def short_desc(self) -> str:
        return "Crawl with all cores of this machine: several processes as one crawl"

    def long_desc(self) -> str:
        return (
            f"{self.short_desc()}. The spider is broad if none is given; options and settings are"
            " those of scrapy crawl. JOBDIR has a folder for each process, p1, p2 ..., and their"
            " private Redis. A process that dies is started again. The number may change from one"
            " start to the next: hosts are handed over first. The exit codes are those of scrapy"
            " crawl"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--processes",
            metavar="N",
            default=str(len(os.sched_getaffinity(0))),
            help="number of processes (default: the cores of this machine)",
        )
        parser.add_argument(
            "--profile",
            metavar="SECONDS",
            dest="sample",
            help="start nothing: sample the crawl that runs in JOBDIR with py-spy, and write a"
            " flame graph of each process to its folder",
        )
        # Scrapy's option of this name would make a profile of the supervisor.
        parser.set_defaults(profile=None)

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        if not args:
            args.append("broad")
        super().process_options(args, opts)

    def _check(self, args: list[str], opts: argparse.Namespace) -> None:
        # A profile needs no setting of a crawl.
        if opts.sample is None:
            super()._check(args, opts)

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if opts.sample is not None:
            self._profile(args[0], opts.sample)
            return
        # Every Scrapy command imports this file, but only this one needs the rest.
        from krowlspider.frontier.store.store import STORE_ERRORS  # noqa: PLC0415
        from krowlspider.node.supervisor import crawl  # noqa: PLC0415

        assert self.settings is not None
        try:
            self.exitcode = crawl(
                self.settings, args[0], opts.spargs, opts.set, _number(opts.processes)
            )
        except (KrowlError, OSError, *STORE_ERRORS) as error:
            print(f"krowlspider: {error_text(error)}", file=sys.stderr)
            is_bad_input = isinstance(error, KrowlError) and not for_want_of_room(error)
            self.exitcode = BAD_INPUT if is_bad_input else STORAGE_FAILED
            log_exit(self.settings, self.exitcode, error_text(error))

    def _profile(self, spider: str, text: str) -> None:
        from krowlspider.node.tree import SECONDS_MAX, find_py_spy, record  # noqa: PLC0415

        assert self.settings is not None
        try:
            seconds = _whole("--profile", text, SECONDS_MAX)
            if not self.settings["JOBDIR"]:
                raise SettingsError("JOBDIR is not set: give that of the running crawl")
            name_jobdir(self.settings, spider)
            jobdir, spy = Path(self.settings["JOBDIR"]), find_py_spy()
            for graph in asyncio.run(record(jobdir, seconds, spy)):
                print(graph)
        except KrowlError as error:
            print(f"krowlspider: {error}", file=sys.stderr)
            self.exitcode = BAD_INPUT


def _number(text: str) -> int:
    """:raises SettingsError: the text is no number of processes"""
    from krowlspider.node.tree import PROCESSES_MAX  # noqa: PLC0415 - as above

    return _whole("--processes", text, PROCESSES_MAX)


def _whole(option: str, text: str, most: int) -> int:
    """:raises SettingsError: the text is no number from 1 to ``most``"""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
        raise SettingsError(f"{option} {text} is not a number from 1 to {most}")
    return int(text)
