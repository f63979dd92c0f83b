from __future__ import annotations

import asyncio
import base64
import gc
import random
import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trustme
from OpenSSL import SSL

from krowlspider.fetch.connection import Connection
from krowlspider.fetch.errors import (
    ConnectionLost,
    ConnectTimeout,
    Exchange,
    NoCloseNotify,
    TLSFailed,
)
from krowlspider.fetch.tls import Channel
from tests.fetch.tls.crowd import BODY, Crowd, crowd
from tests.fetch.tls.records import Records
from tests.fetch.web import Peer, Run, Script, answering, client, fetch, is_reused, serve

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@pytest.fixture(scope="module")
def certificate() -> trustme.LeafCert:
    return trustme.CA().issue_cert("a.test")


@pytest.fixture
def tls(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


async def test_a_certificate_is_recorded_and_not_judged(
    tls: ssl.SSLContext, certificate: trustme.LeafCert
) -> None:
    async with serve(answering(OK, OK), tls) as web, client() as made:
        url = f"https://nobody-knows.test:{web.port}/"
        first = await fetch(made, url)
        second = await fetch(made, url)
    assert first.response_bytes == second.response_bytes == OK
    assert (is_reused(first), is_reused(second), web.connections) == (False, True, 1)
    assert first.peer.tls is not None
    assert first.peer.tls[0] == "TLSv1.3"
    assert first.peer.tls[1].startswith("TLS_")
    pem = certificate.cert_chain_pems[0].bytes().decode()
    assert first.peer.certificate == second.peer.certificate == ssl.PEM_cert_to_DER_cert(pem)


@pytest.mark.parametrize(
    "suite",
    ["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-SHA", "AES128-SHA"],
)
async def test_old_cipher_suites_are_offered(suite: str) -> None:
    context = old_server(suite)
    async with serve(answering(OK), context) as web, client() as made:
        exchange = await fetch(made, f"https://a.test:{web.port}/")
    assert exchange.peer.tls == ("TLSv1.2", suite)


# RFC 2409, section 6.2.
_GROUP_2 = (
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74"
    "020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B302B0A6DF25F1437"
    "4FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED"
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE65381FFFFFFFFFFFFFFFF"
)


async def test_no_server_may_choose_a_modulus(tmp_path: Path) -> None:
    """The modulus may have 10,000 bits. No browser has offered DHE since 2020."""
    # PKCS #3: a sequence of the prime and 2.
    group = base64.encodebytes(bytes.fromhex(f"30818702818100{_GROUP_2}020102")).decode()
    parameters = tmp_path / "dh.pem"
    parameters.write_text(f"-----BEGIN DH PARAMETERS-----\n{group}-----END DH PARAMETERS-----\n")

    context = old_server("DHE-RSA-AES128-SHA256")
    context.load_dh_params(parameters)
    async with serve(answering(OK), context) as web, client() as made:
        with pytest.raises(TLSFailed):
            await fetch(made, f"https://a.test:{web.port}/")


def old_server(suite: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(f"{suite}:@SECLEVEL=0")
    trustme.CA().issue_cert("a.test", key_type=trustme.KeyType.RSA).configure_cert(context)
    return context


def server_hello(version: bytes) -> bytes:
    """Return a record with 32 random bytes, no session, TLS_RSA_WITH_AES_128_CBC_SHA, no
    compression, no extension."""
    hello = version + bytes(range(32)) + b"\x00" + b"\x00\x2f" + b"\x00"
    return b"\x16" + version + b"\x00\x2a" + b"\x02\x00\x00\x26" + hello


async def test_server_without_secure_renegotiation_is_accepted() -> None:
    """RFC 5746, section 4.1: its hello lacks the extension, and may be accepted."""
    said: list[bytes] = []
    sent = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.some()
        await peer.send(server_hello(b"\x03\x03"))
        sent.set()
        said.append(await peer.some())

    async with serve(script) as web, client(connect_timeout=0.3) as made:
        # It waits for the certificate.
        with pytest.raises(ConnectTimeout):
            await fetch(made, f"https://a.test:{web.port}/")
    assert sent.is_set()
    assert said == []


async def test_server_with_old_tls_is_refused() -> None:
    """By the alert protocol_version: RFC 8446, section 6.2."""
    said: list[bytes] = []

    async def script(peer: Peer) -> None:
        await peer.some()
        await peer.send(server_hello(b"\x03\x01"))
        said.append(await peer.some())

    async with serve(script) as web, client() as made:
        with pytest.raises(TLSFailed):
            await fetch(made, f"https://a.test:{web.port}/")
        async with asyncio.timeout(5):
            await web.gone.wait()
    assert (said[0][0], said[0][-1]) == (21, 70)


async def test_times_of_tcp_and_tls_are_separate(
    tls: ssl.SSLContext, certificate: trustme.LeafCert
) -> None:
    """A server with a late hello delays TLS, not TCP; the times are those of the first exchange."""

    def late(*_: object) -> None:
        time.sleep(0.05)

    tls.sni_callback = late
    async with serve(answering(OK, OK), tls) as web, client() as made:
        url = f"https://a.test:{web.port}/"
        first, second = await fetch(made, url), await fetch(made, url)
    dialled = first.times.dialled
    assert dialled is not None
    assert 0 < dialled.connect < 0.05 <= dialled.tls
    assert dialled.name > 0
    assert first.times.duration >= sum(dialled)
    assert second.times.dialled is None


@pytest.mark.parametrize(
    ("host", "sent"), [("a.test", "a.test"), ("a.test.", "a.test"), ("127.0.0.1", None)]
)
async def test_sni_is_sent_for_names_only(tls: ssl.SSLContext, host: str, sent: str | None) -> None:
    names: list[str | None] = []

    def note(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
        names.append(name)

    tls.sni_callback = note
    async with serve(answering(OK), tls) as web, client() as made:
        await fetch(made, f"https://{host}:{web.port}/")
    assert names == [sent]


async def close(peer: Peer) -> None:
    peer.close()


async def reset(peer: Peer) -> None:
    peer.reset()


async def say_nothing(peer: Peer) -> None:
    await peer.gone()


async def speak_plainly(peer: Peer) -> None:
    await peer.send(OK)
    await peer.gone()


@pytest.mark.parametrize(
    ("script", "failure"),
    [
        (close, TLSFailed),
        (reset, TLSFailed),
        (speak_plainly, TLSFailed),
        (say_nothing, ConnectTimeout),
    ],
)
async def test_a_handshake_that_fails_has_its_class(
    script: Script, failure: type[Exception]
) -> None:
    async with serve(script) as web, client(connect_timeout=0.3) as made:
        with pytest.raises(failure):
            await fetch(made, f"https://a.test:{web.port}/")
        async with asyncio.timeout(5):
            await web.gone.wait()


async def test_a_name_that_sni_cannot_carry_is_a_tls_failure(tls: ssl.SSLContext) -> None:
    async with serve(answering(OK), tls) as web, client() as made:
        with pytest.raises(TLSFailed):
            await fetch(made, f"https://{'x' * 64}.test:{web.port}/")


TO_THE_CLOSE = b"HTTP/1.1 200 OK\r\n\r\nhello"


CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"


async def ended_without_close_notify(tls: ssl.SSLContext, response: bytes) -> Exchange:
    """Fetch an answer whose connection ends so."""

    async def script(peer: Peer) -> None:
        records = Records(peer, tls)
        await records.request()
        await peer.send(records.say(response))
        peer.close()

    async with serve(script) as web, client() as made:
        return await fetch(made, f"https://a.test:{web.port}/")


@pytest.mark.parametrize(
    "response", [TO_THE_CLOSE, b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 404 Not Found\r\n\r\nno"]
)
async def test_no_length_and_no_close_notify_is_told_apart(
    tls: ssl.SSLContext, response: bytes
) -> None:
    """RFC 9112, section 9.8: such an answer may be cut."""
    with pytest.raises(NoCloseNotify) as caught:
        await ended_without_close_notify(tls, response)
    exchange = caught.value.exchange
    assert exchange is not None
    assert (exchange.response_bytes, exchange.truncated) == (response, "disconnect")


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        CHUNKS,
        CHUNKS + b"0",
        b"HTTP/1.1 200 OK\r\nServer: x",
        b"",
    ],
)
async def test_an_answer_that_is_cut_is_a_lost_connection(
    tls: ssl.SSLContext, response: bytes
) -> None:
    with pytest.raises(ConnectionLost) as caught:
        await ended_without_close_notify(tls, response)
    assert type(caught.value) is ConnectionLost


async def test_chunks_end_without_trailers_and_close_notify(tls: ssl.SSLContext) -> None:
    """The last chunk shows that the body is whole."""
    exchange = await ended_without_close_notify(tls, CHUNKS + b"0\r\n")
    assert (exchange.body, exchange.truncated) == (b"hello", "")


async def test_records_come_in_any_pieces(tls: ssl.SSLContext) -> None:
    """A few bytes at a time, or all at once with the close_notify."""
    body = random.Random(1).randbytes(100_000)
    response = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + body
    to_the_close = b"HTTP/1.1 200 OK\r\n\r\n" + body

    async def script(peer: Peer) -> None:
        records = Records(peer, tls)
        await records.request()
        data = records.say(response)
        for start in range(0, len(data), 1009):
            await peer.send(data[start : start + 1009])
            await asyncio.sleep(0)
        await records.request()
        await peer.send(records.say(to_the_close) + records.close_notify())
        await peer.gone()

    async with serve(script) as web, client() as made:
        url = f"https://a.test:{web.port}/"
        first, second = await fetch(made, url), await fetch(made, url)
    assert (first.response_bytes, second.response_bytes) == (response, to_the_close)
    assert is_reused(second)


async def test_bytes_that_are_no_record_end_the_connection(tls: ssl.SSLContext) -> None:
    async def script(peer: Peer) -> None:
        records = Records(peer, tls)
        await records.request()
        await peer.send(records.say(TO_THE_CLOSE) + b"no record")
        await peer.gone()

    async with serve(script) as web, client() as made:
        with pytest.raises(ConnectionLost) as caught:
            await fetch(made, f"https://a.test:{web.port}/")
        async with asyncio.timeout(5):
            await web.gone.wait()
    exchange = caught.value.exchange
    assert exchange is not None
    assert (exchange.response_bytes, exchange.truncated) == (TO_THE_CLOSE, "disconnect")


async def test_connection_with_close_notify_is_not_reused(tls: ssl.SSLContext) -> None:
    async def script(peer: Peer) -> None:
        records = Records(peer, tls)
        await records.request()
        await peer.send(records.say(OK))
        await asyncio.sleep(0.05)
        await peer.send(records.close_notify())
        await peer.gone()

    async with serve(script) as web, client(idle_timeout=60) as made:
        url = f"https://a.test:{web.port}/"
        first = await fetch(made, url)
        async with asyncio.timeout(5):
            await web.gone.wait()
        second = await fetch(made, url)
    assert (is_reused(first), is_reused(second), web.connections) == (False, False, 2)


@pytest.mark.parametrize("junk", [b"no record", b"\x15\x03\x03\x00\x02\x02\x28"])
async def test_junk_while_idle_does_not_harm_the_next_request(
    tls: ssl.SSLContext, junk: bytes
) -> None:
    """The junk comes with an answer. The next request does not wait until the connection is
    closed."""

    async def script(peer: Peer) -> None:
        records = Records(peer, tls)
        await records.request()
        await peer.send(records.say(OK) + junk)
        await peer.gone()

    async with serve(script) as web, client() as made:
        url = f"https://a.test:{web.port}/"
        for _ in range(2):
            exchange = await fetch(made, url)
            assert (exchange.response_bytes, is_reused(exchange)) == (OK, False)
    assert web.connections == 2


async def test_ended_idle_connection_is_not_used_in_the_same_turn(tls: ssl.SSLContext) -> None:
    async with serve(answering(OK), tls) as web, client() as made:
        url = f"https://a.test:{web.port}/"
        await fetch(made, url)
        for thing in gc.get_objects():
            if type(thing) is Channel:
                thing.eof_received()
        second = await fetch(made, url)
    assert (second.response_bytes, is_reused(second)) == (OK, False)


async def test_server_that_ends_without_reading_is_not_waited_for(tls: ssl.SSLContext) -> None:
    may_close = asyncio.Event()

    async def script(peer: Peer) -> None:
        await Records(peer, tls).request()
        peer.end()
        await may_close.wait()

    async with serve(script) as web, client() as made:
        url = f"https://a.test:{web.port}/"
        with pytest.raises(ConnectionLost):
            await fetch(made, url, "POST", body=bytes(20_000_000))
        may_close.set()


async def test_a_server_may_answer_before_it_is_asked(tls: ssl.SSLContext) -> None:
    """As an overloaded server does, here with the end of its handshake."""
    response = b"HTTP/1.1 503 Busy\r\nContent-Length: 100000\r\n\r\n" + bytes(100_000)

    tls.maximum_version = ssl.TLSVersion.TLSv1_2

    async def script(peer: Peer) -> None:
        records = Records(peer, tls)
        last = await records.shake_hands()
        await peer.send(last + records.say(response))
        peer.close()

    async with serve(script) as web, client() as made:
        exchange = await fetch(made, f"https://a.test:{web.port}/")
    assert (exchange.status, exchange.response_bytes) == (503, response)


def test_answers_behind_handshakes_survive_a_busy_loop(run: Run, tls: ssl.SSLContext) -> None:
    """Most handshakes are completed in a later turn, and the socket is read before the next one."""
    answer = b"HTTP/1.1 503 Busy\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY

    async def main(web: Crowd) -> set[bytes]:
        async with client(connect_timeout=15) as made:
            url = f"test:{web.port}/"
            return await web.visit(lambda n: fetch(made, f"https://a{n}.{url}", timeout=15))

    with crowd(tls, answer) as web:
        assert run(main(web)) == {answer}


async def test_a_server_may_ask_for_another_handshake(certificate: trustme.LeafCert) -> None:
    """RFC 5246, section 7.4.1.1. A request that comes within it waits."""
    context = SSL.Context(SSL.TLSv1_2_METHOD)
    certificate.configure_cert(context)
    asked = asyncio.Event()

    async def script(peer: Peer) -> None:
        connection = SSL.Connection(context, None)
        connection.set_accept_state()

        async def until(step: Callable[[], object]) -> None:
            while True:
                try:
                    step()
                except SSL.WantReadError:
                    await flush()
                    connection.bio_write(await peer.some())
                else:
                    await flush()
                    return

        async def flush() -> None:
            with suppress(SSL.WantReadError):
                await peer.send(connection.bio_read(65_536))

        await until(lambda: connection.recv(65_536))
        connection.send(OK)
        connection.renegotiate()
        await until(connection.do_handshake)
        hello = await peer.some()
        asked.set()
        await asyncio.sleep(0.05)
        connection.bio_write(hello)
        await until(lambda: connection.recv(65_536))
        connection.send(OK)
        await flush()
        await peer.gone()

    async with serve(script) as web, client() as made:
        url = f"https://a.test:{web.port}/"
        first = await fetch(made, url)
        await asked.wait()
        second = await fetch(made, url)
    assert (first.response_bytes, second.response_bytes) == (OK, OK)
    assert is_reused(second)


def test_a_connection_that_failed_leaves_nothing_in_memory(run: Run, tls: ssl.SSLContext) -> None:
    """The garbage collector does not see the memory of OpenSSL."""

    async def broken(peer: Peer) -> None:
        records = Records(peer, tls)
        await records.request()
        await peer.send(records.say(TO_THE_CLOSE) + b"no record")
        await peer.gone()

    async def failing(script: Script) -> None:
        async with serve(script) as web, client(connect_timeout=0.1) as made:
            with pytest.raises((TLSFailed, ConnectTimeout, ConnectionLost)):
                await fetch(made, f"https://a.test:{web.port}/")
            await web.gone.wait()

    async def cancelled(script: Script) -> None:
        async with serve(script) as web, client() as made:
            task = asyncio.ensure_future(fetch(made, f"https://a.test:{web.port}/"))
            await web.accepted.wait()
            task.cancel()
            await asyncio.wait([task])
            del task
            await web.gone.wait()

    async def main() -> None:
        for script in (close, say_nothing, speak_plainly, broken):
            for way in (failing, cancelled):
                async with asyncio.timeout(5):
                    await way(script)
                await asyncio.sleep(0)
                assert kept() == 0, (script.__name__, way.__name__)

    def kept() -> int:
        return sum(type(thing) in (Channel, Connection) for thing in gc.get_objects())

    gc.collect()
    gc.disable()
    # The objects of other tests are not among those of the collector then.
    gc.freeze()
    try:
        run(main())
    finally:
        gc.enable()
