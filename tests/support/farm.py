"""A web of many addresses beside 60 good hosts, for attacks by number. It counts the requests of
each second.

``python -m tests.support.farm`` is the server: it listens at all of 127.0.0.0/8 and prints its
port. When its standard input ends, it prints its counts as JSON.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
GOOD = 60
# Seconds that a good host takes.
LATENCY = 0.1
# Seconds after which a hub answers its first page. The next one, with the links, is requested five
# thirds of it later: by then the rate of the good hosts is steady.
ANSWERLESS = 8.0
STRIKES = ANSWERLESS + 5 * ANSWERLESS / 3
_FILLER = b"<p>" + b"word " * 800
NEVER = 3600.0


@dataclass(frozen=True)
class Attack:
    """``pages`` pages, each of a hub of its own, with ``links`` links to hosts.

    The hosts are in ``domains`` domains at ``addresses`` addresses. They answer with ``status`` and
    ``head`` after ``latency`` seconds.
    """

    pages: int = 1
    links: int = 10_000
    domains: int = 500
    addresses: int = 500
    latency: float = 0.0
    status: int = 200
    head: str = ""

    def names(self) -> dict[str, str]:
        """Return KROWL_RESOLVE: each good host and hostile address is in a block of its own."""
        good = {f"good{number}.test": f"127.50.{number}.1" for number in range(GOOD)}
        bad = {
            f"*.bad{number}.test": f"127.{100 + number % self.addresses // 250}."
            f"{number % self.addresses % 250}.1"
            for number in range(self.domains)
        }
        return {**good, **bad, "*.hub.test": "127.60.0.1"}


class _Web:
    def __init__(self, attack: Attack):
        self._attack = attack
        # Number of requests by kind of host and second since the start.
        self.kinds: dict[str, Counter[int]] = {"good": Counter(), "bad": Counter()}
        # The same of bad hosts, by address and second.
        self.addresses: Counter[tuple[str, int]] = Counter()
        self.begun = time.monotonic()
        self.struck = 0.0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = writer.get_extra_info("sockname")[0]
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                path = head.split(" ", 2)[1]
                host = head.lower().split("\nhost: ")[1].split(":")[0].strip()
                status, more, body = await self._answer(host, path, address)
                writer.write(
                    f"HTTP/1.1 {status} X\r\nContent-Type: text/html\r\n{more}"
                    f"Content-Length: {len(body)}\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, host: str, path: str, address: str) -> tuple[int, str, bytes]:
        kind = "good" if host.startswith("good") else "bad"
        hub = host.startswith("hub")
        if not hub:
            second = int(time.monotonic() - self.begun)
            self.kinds[kind][second] += 1
            self.addresses[address, second] += kind == "bad"
        if kind == "bad" and not hub:
            await asyncio.sleep(self._attack.latency)
            if self._attack.status != 200:
                return self._attack.status, self._attack.head, b""
        if path == "/robots.txt":
            return 404, "", b""
        if kind == "good":
            await asyncio.sleep(LATENCY)
            number = int(path[1:] or 0)
            links = "".join(f"<a href=/{2 * number + more}>x</a>" for more in (1, 2))
            return 200, "", links.encode() + _FILLER
        if not hub:
            return 200, "", b"<p>a leaf of " + host.encode()
        if path == "/":
            await asyncio.sleep(ANSWERLESS)
            return 200, "", b"<a href=/hosts>x</a>"
        self.struck = self.struck or time.monotonic() - self.begun
        first = int(host[3 : host.index(".")]) * self._attack.links
        return 200, "", self._links(first).encode()

    def _links(self, first: int) -> str:
        port, domains = self.port, self._attack.domains
        return "".join(
            f"<a href=http://h{number}.bad{number % domains}.test:{port}/>x</a>"
            for number in range(first, first + self._attack.links)
        )

    async def run(self) -> None:
        server = await asyncio.start_server(self.serve, "0.0.0.0", 0, backlog=4096)
        self.port: int = server.sockets[0].getsockname()[1]
        print(self.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)
        most = max(self.addresses.values(), default=0)
        print(json.dumps({"struck": self.struck, "most": most, **self.kinds}), flush=True)


class Farm:
    """The server, inside the ``with`` block; after it, its counts."""

    def __init__(self, attack: Attack):
        self.attack = attack

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.support.farm", json.dumps(vars_of(self.attack))]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        found = json.loads(self._process.communicate("")[0])
        self._struck = int(found["struck"])
        # Requests in a second at the busiest address of bad hosts.
        self.most = int(found["most"])
        self._kinds = {
            kind: Counter({int(s): n for s, n in found[kind].items()}) for kind in ("good", "bad")
        }

    def rate(self, kind: str, begin: int, end: int) -> float:
        """Return requests a second to a kind of hosts, between two seconds of the attack."""
        counted = self._kinds[kind]
        return sum(counted[self._struck + at] for at in range(begin, end)) / (end - begin)

    def seeds(self) -> list[str]:
        hosts = [f"good{number}.test" for number in range(GOOD)]
        hosts += [f"hub{number}.hub.test" for number in range(self.attack.pages)]
        return [f"http://{host}:{self.port}/" for host in hosts]


def vars_of(attack: Attack) -> dict[str, object]:
    return {name: getattr(attack, name) for name in attack.__dataclass_fields__}


if __name__ == "__main__":
    asyncio.run(_Web(Attack(**json.loads(sys.argv[1]))).run())
