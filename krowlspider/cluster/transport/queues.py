"""scrapy-redis's queue with this project's messages, for scrapy-redis processes beside a crawl."""

from __future__ import annotations

from typing import Any

from scrapy_redis.queue import FifoQueue

from krowlspider.cluster.transport import message
from krowlspider.cluster.transport.message import is_mark

# Stands for a mark of `krowlspider.cluster.transport.message`, which is no request.
_MARK = object()


class MessageQueue(FifoQueue):  # type: ignore[misc]
    """A ``SCHEDULER_QUEUE_CLASS``: first in, first out, on the list ``{spider}:requests``.

    ``pop`` raises BadMessage for a message that is not JSON of this project, and drops it. Nobody
    acknowledges what it pops, so nodes send it again. Its client blocks: the nodes themselves use
    `Inbox` and `Forwarder`.
    """

    def __init__(self, server: Any, spider: Any, key: str, serializer: Any = None) -> None:
        """:raises TypeError: another serializer is asked for"""
        if serializer not in (None, message):
            raise TypeError(f"the inbox holds messages of {message.__name__}, not of {serializer}")
        super().__init__(server, spider, key, serializer=message)

    def pop(self, timeout: float = 0) -> Any:
        while (request := super().pop(timeout)) is _MARK:
            pass
        return request

    def _decode_request(self, encoded_request: bytes) -> Any:
        return _MARK if is_mark(encoded_request) else super()._decode_request(encoded_request)
