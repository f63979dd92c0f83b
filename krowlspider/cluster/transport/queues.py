"""scrapy-redis's queue with the messages of this project, for ordinary scrapy-redis processes beside a crawl.

With ``SCHEDULER_QUEUE_CLASS = "krowlspider.cluster.transport.queues.MessageQueue"`` they push to and pop from the inbox of a node.
Its client blocks: the nodes themselves use `Inbox` and `Forwarder`.
"""

from __future__ import annotations

from typing import Any

from scrapy_redis.queue import FifoQueue

from krowlspider.cluster.transport import message


class MessageQueue(FifoQueue):  # type: ignore[misc]
    """First in, first out, on the list ``{spider}:requests``; JSON only, a pickle is never read.

    ``pop`` raises BadMessage for what is none of ours, which is then off the list.
    """

    def __init__(self, server: Any, spider: Any, key: str, serializer: Any = None) -> None:
        """:raises TypeError: another serializer is asked for"""
        if serializer not in (None, message):
            raise TypeError(f"the inbox holds messages of {message.__name__}, not of {serializer}")
        super().__init__(server, spider, key, serializer=message)
