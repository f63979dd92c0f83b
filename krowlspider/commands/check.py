"""``scrapy check`` with Scrapy's own components."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.commands.check import Command as ScrapyCommand

from krowlspider.commands.single_page import SinglePage

if TYPE_CHECKING:
    import argparse


class Command(SinglePage, ScrapyCommand):
    def _spiders(self, args: list[str], opts: argparse.Namespace) -> list[str]:
        # For an unknown one, Scrapy shows the traceback of a KeyError.
        return args
