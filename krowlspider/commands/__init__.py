"""Scrapy subcommands of krowlspider, one per file.

`bench`, `check`, `crawl`, `fetch`, `parse`, `runspider`, `shell` and `view` replace Scrapy's own.
"""

import sys
from types import TracebackType

_before = sys.excepthook


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print one line for Ctrl-C while a command starts: signals to stop are handled later."""
    if issubclass(kind, KeyboardInterrupt):
        print("krowlspider: interrupted", file=sys.stderr)
    else:
        _before(kind, error, trace)


sys.excepthook = _report
