"""Posts JSON to another server. Call it in a thread."""

from __future__ import annotations

from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from socket import SHUT_RDWR
from threading import Thread
from urllib.parse import urlsplit


class NotSentError(Exception):
    """Something was not sent; the message is the reason."""


class Webhook:
    """POSTs JSON to ``url``, within ``time_limit`` seconds each."""

    def __init__(self, url: str, time_limit: float):
        self._parts = urlsplit(url)
        self._time_limit = time_limit

    def send(self, body: bytes) -> None:
        """:raises NotSentError: it was not taken"""
        parts = self._parts
        name = f"{parts.scheme}://{parts.hostname}"
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=self._time_limit)
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        post = _Post(connection, target, body)
        post.start()
        post.join(self._time_limit)
        if post.is_alive():
            post.cut()
        if isinstance(post.error, UnicodeError):
            raise NotSentError(f"{name} is no name for the DNS") from post.error
        if post.status is None:
            raise NotSentError(f"{name} does not answer") from post.error
        if not 200 <= post.status < 300:
            raise NotSentError(f"{name} answered with status {post.status}")


class _Post(Thread):
    """A POST in a thread of its own: nothing can cut off a look-up in the DNS."""

    status: int | None = None
    error: Exception | None = None

    def __init__(self, connection: HTTPConnection, target: str, body: bytes):
        super().__init__(name="post", daemon=True)
        self._connection = connection
        self._target = target
        self._body = body
        self._is_cut = False

    def run(self) -> None:
        connection = self._connection
        try:
            connection.connect()
            # Once it is cut, nothing ends a slow answer.
            if not self._is_cut:
                headers = {"Content-Type": "application/json"}
                connection.request("POST", self._target, self._body, headers)
                self.status = connection.getresponse().status
        except (OSError, HTTPException, UnicodeError) as error:
            self.error = error
        finally:
            connection.close()

    def cut(self) -> None:
        """Have the thread end: now, or, before it is connected, after that."""
        self._is_cut = True
        if self._connection.sock is not None:
            with suppress(OSError):
                self._connection.sock.shutdown(SHUT_RDWR)
