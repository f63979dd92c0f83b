"""``scrapy check`` with Scrapy's own components."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scrapy.commands.check import Command as ScrapyCommand
from scrapy.spiderloader import get_spider_loader

from krowlspider.commands.crawl import BAD_INPUT
from krowlspider.commands.single_page import SinglePage

if TYPE_CHECKING:
    import argparse


class Command(SinglePage, ScrapyCommand):
    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        super().process_options(args, opts)
        assert self.settings is not None
        names = sorted(get_spider_loader(self.settings).list())
        if unknown := [name for name in args if name not in names]:
            # Scrapy shows the traceback of a KeyError.
            print(
                f"krowlspider: there is no spider {unknown[0]!r}:"
                f" give one of these: {', '.join(names)}",
                file=sys.stderr,
            )
            sys.exit(BAD_INPUT)
