"""Starts a crawl of several processes from the command line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.spiderloader import get_spider_loader
from scrapy.utils.log import configure_logging

from krowlspider.config.validation import validate
from krowlspider.errors import SettingsError
from krowlspider.node.redis import find_redis
from krowlspider.node.supervisor import Plan, Supervisor
from krowlspider.node.tree import Tree
from krowlspider.node.words import Words, check_reserved
from krowlspider.spiders.broad import BroadSpider

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy.settings import Settings

_PAGES = "KROWL_CLUSTER_PAGES"


def crawl(
    settings: Settings, spider: str, spargs: dict[str, str], given: Sequence[str], count: int
) -> int:
    """Crawl with ``count`` processes to the end; return the exit code.

    ``settings`` are checked, ``given`` are those of the command line as NAME=VALUE, ``spargs`` the
    arguments of the spider.

    :raises KrowlError: the crawl cannot begin
    :raises StoreError: the frontier in a folder cannot be used
    """
    settings = settings.copy()
    kind = get_spider_loader(settings).load(spider)
    kind.update_settings(settings)
    validate(settings)
    check_reserved(settings)
    if not settings["JOBDIR"]:
        raise SettingsError(
            "JOBDIR is not set, and scrapy node needs a folder for its processes: give -s"
            " JOBDIR=jobs/default"
        )
    spargs, given, max_pages = dict(spargs), list(given), 0
    if issubclass(kind, BroadSpider) and (pages := spargs.pop("max_pages", "0")) != "0":
        if settings.getint(_PAGES):
            raise SettingsError(f"max_pages and {_PAGES} are both given: give one of them")
        if not pages.isdecimal():
            raise SettingsError(f"-a max_pages={pages}: give a whole number, 0 for no limit")
        given.append(f"{_PAGES}={pages}")
        max_pages = int(pages)
    words = Words(spider, spargs, given, settings, count)
    tree = Tree(Path(settings["JOBDIR"]))
    # Nobody should install a server for a folder that is refused.
    tree.check()
    redis = find_redis()
    tree.take()
    configure_logging(settings)
    plan = Plan(tree, count, spider, words, settings, redis, max_pages)
    return asyncio.run(_run(plan))


async def _run(plan: Plan) -> int:
    return await Supervisor(plan).run()
