"""Crawls that are served, with clocks that a test moves."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from scrapy.settings import Settings

from krowlspider.rpc.urlfrontier.crawls import Crawls
from krowlspider.rpc.urlfrontier.intake import AckStatus, Report

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from krowlspider.rpc.urlfrontier.crawl import ServedCrawl

BEGIN = 1_800_000_000.0


class Clock:
    """A clock for both the time of day and the monotonic time."""

    def __init__(self, now: float = BEGIN):
        self.now = now

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds


def project_settings() -> Settings:
    """Return those of this project. Scrapy's function for it changes the environment, which the
    processes of later tests have too."""
    settings = Settings()
    settings.setmodule("krowlspider.project", priority="project")
    return settings


def opened(path: Path, clock: Clock, **settings: object) -> Crawls:
    found = project_settings()
    for name, value in settings.items():
        found.set(name, value, priority="cmdline")
    return Crawls(path, found, wall=clock, monotonic=clock)


@contextmanager
def served(path: Path, clock: Clock, **settings: object) -> Iterator[ServedCrawl]:
    """Open the default crawl of a folder."""
    crawls = opened(path, clock, **settings)
    try:
        yield crawls.begun("")
    finally:
        crawls.close()


def discovered(*urls: str, **metadata: str) -> list[Report]:
    return [Report(url, {key: [value] for key, value in metadata.items()}) for url in urls]


def known(url: str, refetch: float = 0.0, **metadata: str) -> list[Report]:
    return [Report(url, {key: [value] for key, value in metadata.items()}, refetch)]


def finished(steps: Generator[None, None, int]) -> int:
    """Do all steps of a removal; return how many URLs it has removed."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def urls(crawl: ServedCrawl, queues: int = 0, per_queue: int = 0, seconds: float = 30) -> list[str]:
    return [item.url for _, item in crawl.take(queues, per_queue, seconds)]


OK, SKIPPED, FAIL = AckStatus.OK, AckStatus.SKIPPED, AckStatus.FAIL
