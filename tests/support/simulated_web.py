"""Webs of the simulated network: each answers at one port of every address."""

from __future__ import annotations

import asyncio
import asyncio.sslproto
from dataclasses import replace
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, Self, cast

from tests.mockweb.folder import FolderSite
from tests.mockweb.protocol import Connection, Web
from tests.mockweb.render import GraphSite
from tests.mockweb.server import certificate
from tests.mockweb.spec import SpecSite
from tests.support.rawweb import NOT_FOUND, Raw, RawWeb, first_request
from tests.support.simulated_loop import clocks, servers

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.mockweb.graph import Graph
    from tests.mockweb.log import Entry
    from tests.mockweb.reply import Site

_ports = count(20_000)


class _Log:
    """Keeps the entries of requests in memory."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.add = self.entries.append

    def flush(self) -> None:
        """Do nothing: no entry waits."""


class SimulatedWeb:
    """A mock web of the simulated network, made from `graph`, `spec` or `folder`.

    It serves inside its ``with`` block.
    """

    def __init__(
        self,
        *,
        graph: Graph | None = None,
        spec: Sequence[Mapping[str, Any]] | None = None,
        folder: Path | None = None,
        hosts: int = 1,
        tls: bool = False,
        port: int = 0,
    ) -> None:
        self.port = port or next(_ports)
        self.tls_port = next(_ports) if tls or (graph is not None and graph.tls) else 0
        if graph is not None:
            self.graph = replace(graph, port=self.port, tls_port=self.tls_port)
            site: Site = GraphSite(self.graph)
        elif folder is not None:
            site = FolderSite(folder, hosts, self.port)
        else:
            site = SpecSite(spec or (), self.port, self.tls_port)
        self._site = site
        self._log = _Log()
        self._web = Web(site, self._log, clocks)

    def __enter__(self) -> Self:
        servers[self.port] = lambda: Connection(self._web, tls=False)
        if self.tls_port:
            servers[self.tls_port] = self._secured
        return self

    def __exit__(self, *_: object) -> None:
        servers.pop(self.port)
        servers.pop(self.tls_port, None)

    def _secured(self) -> asyncio.BaseProtocol:
        return _over_tls(Connection(self._web, tls=True), _certificate())

    def url(self, host: str, path: str = "/", *, tls: bool = False) -> str:
        """Return the URL of a path on a host."""
        return f"{'https' if tls else 'http'}://{host}:{self.tls_port if tls else self.port}{path}"

    def seeds(self) -> list[str]:
        """Return the root of every host of a graph, or the first page of a folder."""
        return self._site.seeds() if isinstance(self._site, FolderSite) else self.graph.seeds()

    def hold(self) -> None:
        """Save the requests until now, for `go_back`."""
        self._saved = self._log.entries[:], dict(self._web.asked)

    def go_back(self) -> None:
        """Forget the requests since `hold`."""
        self._log.entries[:], self._web.asked = self._saved

    def log(self) -> list[Entry]:
        """Return all requests that have ended, by start time."""
        return sorted(self._log.entries, key=lambda entry: entry.start)


@cache
def _certificate() -> ssl.SSLContext:
    return certificate()


def _over_tls(protocol: asyncio.Protocol, context: ssl.SSLContext) -> asyncio.BaseProtocol:
    loop = asyncio.get_running_loop()
    return asyncio.sslproto.SSLProtocol(loop, protocol, context, None, server_side=True)


class SimulatedRawWeb(RawWeb):
    """A `RawWeb` of the simulated network."""

    def __enter__(self) -> Self:
        self.port = next(_ports)
        servers[self.port] = self._connection
        return self

    def __exit__(self, *_: object) -> None:
        servers.pop(self.port)

    def _connection(self) -> asyncio.BaseProtocol:
        connection = _RawConnection(self, self._answers)
        return connection if self._tls is None else _over_tls(connection, self._tls)


class _RawConnection(asyncio.Protocol):
    def __init__(self, web: RawWeb, answers: Mapping[str, Raw]) -> None:
        self._web = web
        self._answers = answers
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if (secured := transport.get_extra_info("ssl_object")) is not None:
            self._web.secured.append((secured.version(), secured.cipher()[0]))

    def data_received(self, data: bytes) -> None:
        self._received += data
        while request := first_request(self._received):
            self._received = self._received.removeprefix(request)
            path = request.split(b" ", 2)[1].decode()
            self._web.requests.append((path, request))
            answer = self._answers.get(path, NOT_FOUND)
            self._transport.write(answer.to(request))
            if answer.closes:
                self._transport.close()
