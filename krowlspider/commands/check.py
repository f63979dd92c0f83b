"""``scrapy check`` with Scrapy's own components."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scrapy.commands.check import Command as ScrapyCommand
from scrapy.spiderloader import get_spider_loader

from krowlspider.commands.crawl import BAD_INPUT, check_spider
from krowlspider.commands.single_page import SinglePage
from krowlspider.errors import SettingsError

if TYPE_CHECKING:
    import argparse


class Command(SinglePage, ScrapyCommand):
    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        super().process_options(args, opts)
        assert self.settings is not None
        names = sorted(get_spider_loader(self.settings).list())
        try:
            for name in args:
                # For an unknown one, Scrapy shows the traceback of a KeyError.
                check_spider(name, names)
        except SettingsError as error:
            print(f"krowlspider: {error}", file=sys.stderr)
            sys.exit(BAD_INPUT)
