"""``scrapy settings`` with what the add-on sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.commands.settings import Command as ScrapyCommand

from krowlspider.addon import fill_in

if TYPE_CHECKING:
    import argparse


class Command(ScrapyCommand):
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        assert self.settings is not None
        fill_in(self.settings)
        super().run(args, opts)
