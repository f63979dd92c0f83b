"""The hostile hosts of the benchmark do what their rows say, and the crawler's bounds meet it."""

from __future__ import annotations

import itertools
import socket
import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import brotli
import pytest
import uvloop

from bench.hostile.robots import COSTLY, links
from krowlspider.fetch.errors import ConnectTimeout, FetchError, TLSFailed
from krowlspider.politeness.robots import RobotsRules, spelt
from krowlspider.urls.canonical import normalise
from krowlspider.urls.robots_groups import BODY_MAX
from tests.fetch.web import client, fetch
from tests.support.work import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.hostile.attacks import Web

# tests/fetch/tls/test_work.py and tests/politeness/test_robots_work.py test the bounds themselves.
pytestmark = pytest.mark.slow

BROTLI_MAX = 2400
URL_MAX = 2048
# Steps of a matcher that goes back, and CPU seconds of ours on a slow machine.
STEPS = 1_000_000
VERDICT_MAX = 0.02


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    # Makes the bodies of all attacks, which takes seconds.
    from bench.hostile.attacks import ATTACKS  # noqa: PLC0415
    from bench.hostile.web import HostileWeb  # noqa: PLC0415

    with HostileWeb([name for name in ATTACKS if name.startswith("tls-")]) as hostile:
        yield hostile.web


def asked(web: Web, name: str, path: str) -> int:
    """The bytes that come of a path at an attack's host."""

    from bench.hostile.attacks import ATTACKS  # noqa: PLC0415

    async def main() -> int:
        host = next(iter(ATTACKS[name].tls)) or "127.100.0.1"
        async with client(connect_timeout=2) as made:
            return len((await fetch(made, f"https://{host}:{web.tls}{path}", timeout=60)).body)

    return uvloop.run(main())


@pytest.mark.parametrize(
    ("name", "error", "cause"),
    [
        # On a slow processor, the bound on CPU is met first.
        ("tls-keys", TLSFailed, "bytes of TLS without content|ms of CPU for 0 bytes"),
        ("tls-keys-content", TLSFailed, "ms of CPU"),
        ("tls-bytes", TLSFailed, "ms of CPU"),
        ("tls-empty", TLSFailed, "ms of CPU"),
        ("tls-modulus", TLSFailed, "handshake failure"),
        ("tls-field", TLSFailed, "finite field"),
        ("tls-dripped", ConnectTimeout, "no connection"),
    ],
)
def test_a_flood_over_tls_meets_its_bound(
    web: Web, name: str, error: type[FetchError], cause: str
) -> None:
    with pytest.raises(error, match=cause):
        asked(web, name, "/1")


def test_records_of_a_byte_below_the_bound_are_read(web: Web) -> None:
    assert asked(web, "tls-bytes-short", "/1") == 5000


@pytest.mark.parametrize("name", ["tls-keys", "tls-empty", "tls-bytes-short"])
def test_a_hostile_server_of_tls_has_links(web: Web, name: str) -> None:
    assert asked(web, name, "/robots.txt") == 0
    assert asked(web, name, "/") > 10_000


def test_a_client_that_offers_dhe_pays_for_the_long_modulus(web: Web) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("DHE:@SECLEVEL=0")
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    dhe = context.wrap_bio(inward, outward, server_hostname="modulus.test")
    took: list[float] = []
    with socket.create_connection(("127.0.0.1", web.tls)) as connection:
        connection.settimeout(30)
        # Its hello, and its key.
        while len(took) < 2:
            begun = time.thread_time()
            with suppress(ssl.SSLWantReadError):
                dhe.do_handshake()
            if outward.pending:
                took.append(time.thread_time() - begun)
                connection.sendall(outward.read())
            else:
                inward.write(connection.recv(65_536))
    assert took[1] > 0.1


def steps(pattern: str, path: str) -> int:
    """What a matcher takes that tries each way, as a regular expression does; STEPS at most."""
    waiting, taken = [(0, 0)], 0
    while waiting and taken < STEPS:
        taken += 1
        at, place = waiting.pop()
        if at == len(pattern) or pattern[at:] == "$":
            if at == len(pattern) or place == len(path):
                break
        elif pattern[at] == "*":
            waiting += [(at, place + 1)] if place < len(path) else []
            waiting.append((at + 1, place))
        elif place < len(path) and pattern[at] == path[place]:
            waiting.append((at + 1, place + 1))
    return taken


@pytest.mark.parametrize("name", COSTLY)
def test_costly_robots_txt_is_short_and_its_links_are_urls(name: str) -> None:
    """It is short to send, within the size that is read, and each link is a URL of its own."""
    make, path = COSTLY[name]
    assert len(brotli.compress(make())) <= BROTLI_MAX
    assert len(make()) <= BODY_MAX
    urls = {normalise(f"http://{name}.test:65535{link}") for link in links(path)}
    assert len(urls) == 1000
    assert all(url is not None and len(url) <= URL_MAX for url in urls)


@pytest.mark.parametrize("name", ["wildcards", "near", "escapes", "groups"])
def test_a_matcher_that_goes_back_takes_seconds_for_one_link(name: str) -> None:
    make, path = COSTLY[name]
    patterns = [line[7:].decode() for line in make().splitlines() if line.startswith(b"allow: ")]
    link = spelt(links(path)[0])
    totals = itertools.accumulate(steps(spelt(pattern), link) for pattern in patterns[:30])
    assert any(total >= STEPS for total in totals)


@pytest.mark.parametrize("name", COSTLY)
def test_a_verdict_of_a_costly_robots_txt_takes_some_ms(name: str) -> None:
    make, path = COSTLY[name]
    rules = RobotsRules.parse(make(), "krowlspider")
    url = f"http://{name}.test{next(iter(links(path)))}"
    assert seconds(lambda: rules.allowed(url), tries=5) < VERDICT_MAX
