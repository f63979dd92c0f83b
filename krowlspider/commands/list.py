"""``scrapy list`` with the errors of ``scrapy crawl``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.commands.list import Command as ScrapyCommand

from krowlspider.addon import fill_in
from krowlspider.commands.crawl import loaded_spiders, one_line_errors

if TYPE_CHECKING:
    import argparse


class Command(ScrapyCommand):
    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        assert self.settings is not None
        with one_line_errors(opts):
            super().process_options(args, opts)
            fill_in(self.settings)
            loaded_spiders(self.settings)
