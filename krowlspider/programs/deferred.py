"""Commands whose programs are imported when they are used."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from scrapy.commands import ScrapyCommand

if TYPE_CHECKING:
    import argparse


class DeferredCommand(ScrapyCommand):
    """Stands for the class `Command` of the module ``program``.

    Scrapy imports all commands at each start, and a crawl needs none of these programs.
    """

    program: ClassVar[str]
    requires_project = True
    requires_crawler_process = False
    default_settings: ClassVar[dict[str, Any]] = {"LOG_ENABLED": False}

    @cached_property
    def _command(self) -> ScrapyCommand:
        command: ScrapyCommand = import_module(self.program).Command()
        return command

    def syntax(self) -> str:
        return self._command.syntax()

    def short_desc(self) -> str:
        return self._command.short_desc()

    def long_desc(self) -> str:
        return self._command.long_desc()

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        self._command.settings = self.settings
        self._command.add_options(parser)

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        # Scrapy imports this module in projects without the add-on too.
        from krowlspider.addon import fill_in_for_program  # noqa: PLC0415
        from krowlspider.commands.crawl import one_line_errors  # noqa: PLC0415

        assert self.settings is not None
        with one_line_errors(opts):
            super().process_options(args, opts)
            fill_in_for_program(self.settings)

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        try:
            self._command.run(args, opts)
        finally:
            self.exitcode = self._command.exitcode
