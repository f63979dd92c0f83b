"""An idle connection with TLS takes little memory, however long its answers were.

``python -m tests.fetch.tls.test_memory PORT`` is the measured client, without the server's side of
each connection."""

from __future__ import annotations

import asyncio
import re
import ssl
import subprocess
import sys
from pathlib import Path

import trustme
import uvloop

from tests.fetch.web import answering, client, fetch, serve

ROOT = Path(__file__).resolve().parents[3]
CONNECTIONS = 100
# 62 here; of uvloop's own TLS 427.
MOST_KB = 110
BODY = bytes(250_000)
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


def resident_kb() -> int:
    found = re.search(r"^RssAnon:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


async def measure(port: int) -> float:
    """Return the kilobytes of each idle connection, without the first ones."""
    async with client(idle_timeout=60.0, max_idle=2 * CONNECTIONS) as made:
        sizes = []
        for number in range(2 * CONNECTIONS):
            if number % CONNECTIONS == 0:
                sizes.append(resident_kb())
            exchange = await fetch(made, f"https://h{number}.test:{port}/")
            assert len(exchange.body) == len(BODY)
        del exchange
        return (resident_kb() - sizes[1]) / CONNECTIONS


def test_an_idle_connection_takes_little_memory() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("h.test").configure_cert(context)

    async def main() -> float:
        async with serve(answering(RESPONSE), context) as web:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.fetch.tls.test_memory", str(web.port)),
                cwd=ROOT,
                stdout=subprocess.PIPE,
            )
            said, _ = await process.communicate()
        assert process.returncode == 0
        return float(said)

    assert asyncio.run(main()) < MOST_KB


if __name__ == "__main__":
    print(uvloop.run(measure(int(sys.argv[1]))))
