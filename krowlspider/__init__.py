"""Broad crawls with Scrapy: polite to every host, durable at every kill, archived as WARC."""

from importlib import import_module
from typing import Any

__version__ = "0.2.0"
__all__ = ["Page", "__version__", "crawl", "run"]


def __getattr__(name: str) -> Any:
    # Imported when it is asked for: nobody else pays for it. For type checkers, __init__.pyi.
    if name in {"Page", "crawl", "run"}:
        return getattr(import_module("krowlspider.library"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
