"""``scrapy runspider`` with the errors and exit codes of ``scrapy crawl``."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.commands.runspider import Command as ScrapyCommand
from scrapy.exceptions import UsageError
from scrapy.utils.spider import iter_spider_classes

from krowlspider.commands.crawl import checked_start, run_crawl, use_add_on
from krowlspider.config.log import name_spider
from krowlspider.config.validation import validate
from krowlspider.errors import SettingsError

if TYPE_CHECKING:
    import argparse

    from scrapy import Spider


class Command(ScrapyCommand):
    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        assert self.settings is not None
        with checked_start(self.settings, opts):
            super().process_options(args, opts)
            use_add_on(self.settings)
            if len(args) != 1:
                raise UsageError
            self._spider = _spider_in(Path(args[0]))
            settings = self.settings.copy()
            self._spider.update_settings(settings)
            validate(settings)
            name_spider(settings, self._spider.name)

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        run_crawl(self, self._spider, opts.spargs)


def _spider_in(path: Path) -> type[Spider]:
    """Return the last spider class in a file.

    :raises SettingsError: there is none, or the file cannot be imported
    """
    if path.suffix not in {".py", ".pyw"} or not path.is_file():
        raise SettingsError(f"{path} is not a file of Python source: give one that holds a spider")
    sys.path.insert(0, str(path.resolve().parent))
    try:
        module = import_module(path.stem)
    except ImportError as error:
        raise SettingsError(f"{path} cannot be imported: {error}") from error
    finally:
        sys.path.pop(0)
    spiders = list(iter_spider_classes(module))
    if not spiders:
        raise SettingsError(f"{path} holds no spider: a spider is a class with a name")
    return spiders[-1]
