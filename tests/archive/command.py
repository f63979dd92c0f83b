"""Run ``scrapy warc``."""

from __future__ import annotations

from tests.support.crawling import scrapy


def warc(*words: object, code: int = 0) -> tuple[bytes, str]:
    """Run the command with these arguments; return its output and its error output."""
    done = scrapy("warc", *words, code=code)
    return done.stdout, done.stderr.decode()
