"""A relay before a server, which cuts a connection after so many bytes."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Relay:
    """Passes connections on to a port of 127.0.0.1. The first one ends after ``cut_after`` bytes
    from the client, or without an answer to them if ``cut_answer``. ``passed`` counts the bytes of
    the clients."""

    def __init__(self, port: int, cut_after: int | None, *, cut_answer: bool = False) -> None:
        self._target = port
        self._left = cut_after
        self._cut_answer = cut_answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[Thread] = []
        self.port: int = self._listener.getsockname()[1]
        self.passed = 0
        self._start(self._accept)

    def _start(self, act: object, *arguments: object) -> None:
        thread = Thread(target=act, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            left, self._left = self._left, None
            self._start(self._pass, client, server, left)
            self._start(self._pass, server, client, None)

    def _pass(self, source: socket.socket, target: socket.socket, left: int | None) -> None:
        with source:
            try:
                while data := source.recv(1 << 16):
                    if source.getsockname()[1] == self.port:
                        self.passed += len(data)
                    if left is not None and len(data) >= left:
                        if self._cut_answer:
                            source.shutdown(socket.SHUT_RDWR)
                            target.sendall(data)
                        break
                    left = None if left is None else left - len(data)
                    target.sendall(data)
            except OSError:
                pass
            for each in (source, target):
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue

    def close(self) -> None:
        # A thread that accepts is not woken by a close.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)


@contextmanager
def relay(port: int, cut_after: int | None, *, cut_answer: bool = False) -> Iterator[Relay]:
    made = Relay(port, cut_after, cut_answer=cut_answer)
    try:
        yield made
    finally:
        made.close()
