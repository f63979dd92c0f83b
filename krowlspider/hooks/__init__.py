"""Hooks of a crawl: a class of your own decides and watches, as with gocrawl's Extender.

Name it in KROWL_HOOKS; docs/hooks.md has the table. Without KROWL_HOOKS nothing imports this room.
"""

from krowlspider.hooks.hooks import Hooks
from krowlspider.hooks.words import (
    KEEP,
    SKIP,
    Answer,
    Delay,
    Enqueued,
    Failed,
    HookError,
    Link,
    Redact,
    Url,
)

__all__ = [
    "KEEP",
    "SKIP",
    "Answer",
    "Delay",
    "Enqueued",
    "Failed",
    "HookError",
    "Hooks",
    "Link",
    "Redact",
    "Url",
]
