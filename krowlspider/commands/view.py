"""``scrapy view`` with Scrapy's own components."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.commands.view import Command as ScrapyCommand

from krowlspider.commands.single_page import use_scrapys_own

if TYPE_CHECKING:
    import argparse


class Command(ScrapyCommand):
    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        super().process_options(args, opts)
        assert self.settings is not None
        use_scrapys_own(self.settings)
