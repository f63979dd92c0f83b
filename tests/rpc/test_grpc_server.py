"""The server of gRPC: who may call it, and its limits."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from krowlspider.errors import SettingsError
from krowlspider.rpc import grpc_server
from krowlspider.rpc.grpc_server import CALLS_MAX, MESSAGE_MAX, GrpcServer
from krowlspider.rpc.options import Options

grpc = pytest.importorskip("grpc.aio") and pytest.importorskip("grpc")
health_pb2 = pytest.importorskip("grpc_health.v1.health_pb2")
health_pb2_grpc = pytest.importorskip("grpc_health.v1.health_pb2_grpc")
reflection_pb2 = pytest.importorskip("grpc_reflection.v1alpha.reflection_pb2")
reflection_pb2_grpc = pytest.importorskip("grpc_reflection.v1alpha.reflection_pb2_grpc")

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TOKEN = "t" * 16
ACCESS = (("authorization", f"Bearer {TOKEN}"),)
LOCAL = "127.0.0.1:0"
Code = grpc.StatusCode


async def echo(request: bytes, _: Any) -> bytes:
    if request == b"slow":
        await asyncio.sleep(60)
    return request


async def endless(_: bytes, __: Any) -> AsyncIterator[bytes]:
    while True:
        yield b"x"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(options: Options) -> AsyncIterator[tuple[GrpcServer, int]]:
    made = GrpcServer(options)
    handlers = {
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
        "Endless": grpc.unary_stream_rpc_method_handler(endless),
    }
    handler = grpc.method_handlers_generic_handler("test.Test", handlers)
    made.aio.add_generic_rpc_handlers((handler,))
    made.offer("test.Test")
    port = await made.start()
    try:
        yield made, port
    finally:
        await made.stop()


async def code_of(call: Any) -> Any:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return Code.OK


async def check_calls() -> None:
    async with (
        serving(Options(LOCAL, TOKEN)) as (made, port),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        call, stream = (
            channel.unary_unary("/test.Test/Echo"),
            channel.unary_stream("/test.Test/Endless"),
        )
        assert await call(b"x", metadata=ACCESS) == b"x"
        for wrong in ((), (("authorization", "Bearer x"),), (("authorization", TOKEN),)):
            assert await code_of(call(b"x", metadata=wrong)) is Code.UNAUTHENTICATED
            assert await code_of(stream(b"", metadata=wrong).read()) is Code.UNAUTHENTICATED
        large = b"x" * (MESSAGE_MAX + 1)
        assert await code_of(call(large, metadata=ACCESS)) is Code.RESOURCE_EXHAUSTED
        assert await code_of(call(b"slow", metadata=ACCESS)) is Code.DEADLINE_EXCEEDED
        streams = [stream(b"", metadata=ACCESS) for _ in range(CALLS_MAX)]
        assert [await each.read() for each in streams] == [b"x"] * CALLS_MAX
        assert await code_of(stream(b"", metadata=ACCESS).read()) is Code.RESOURCE_EXHAUSTED
        # They have room of their own beside the streams.
        assert await call(b"x", metadata=ACCESS) == b"x"
        for each in streams:
            each.cancel()
        while made.counts["limit"] < 100:
            if await code_of(stream(b"", metadata=ACCESS).read()) is Code.OK:
                break
        else:
            pytest.fail("the ended streams keep others out")
        counts = made.counts
        assert (counts["token"], counts["deadline"], counts["unread"]) == (6, 1, 1)


def test_calls_need_the_token_and_keep_to_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_server, "DEADLINE", 0.2)
    asyncio.run(check_calls())


async def check_health() -> None:
    async with (
        serving(Options(LOCAL, TOKEN)) as (made, port),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        # Without a token.
        check = health_pb2_grpc.HealthStub(channel).Check
        asked = health_pb2.HealthCheckRequest(service="test.Test")
        assert (await check(asked)).status == health_pb2.HealthCheckResponse.NOT_SERVING
        await made.set_ready(is_ready=True)
        assert (await check(asked)).status == health_pb2.HealthCheckResponse.SERVING
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        found = [
            service.name
            async for each in stub.ServerReflectionInfo(iter([ask]), metadata=ACCESS)
            for service in each.list_services_response.service
        ]
        assert "test.Test" in found


def test_health_and_reflection_name_the_service() -> None:
    asyncio.run(check_health())


def certificate(
    folder: Path, name: str, issuer: tuple[Any, Any] | None = None
) -> tuple[Path, Path, tuple[Any, Any]]:
    """Write a certificate and its key in PEM, signed by itself or by an issuer; return the files,
    and both as an issuer."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signer_name, signer = (subject, key) if issuer is None else (issuer[0].subject, issuer[1])
    now = datetime.now(UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(signer_name, subject, key.public_key(), 1 + len(name))
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    cert_file, key_file = folder / f"{name}.pem", folder / f"{name}.key"
    cert_file.write_bytes(made.public_bytes(pem))
    key_file.write_bytes(key.private_bytes(pem, form, plain))
    return cert_file, key_file, (made, key)


async def check_mtls(folder: Path) -> None:
    ca, _, issuer = certificate(folder, "ca")
    cert, key, _ = certificate(folder, "server", issuer)
    own, own_key, _ = certificate(folder, "client", issuer)
    strange, strange_key, _ = certificate(folder, "stranger")
    options = Options(LOCAL, TOKEN, str(cert), str(key), str(ca))
    async with serving(options) as (_, port):
        make = partial(grpc.ssl_channel_credentials, ca.read_bytes())
        for credentials, code in (
            (make(own_key.read_bytes(), own.read_bytes()), Code.OK),
            (make(strange_key.read_bytes(), strange.read_bytes()), Code.UNAVAILABLE),
            (make(), Code.UNAVAILABLE),
        ):
            async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
                call = channel.unary_unary("/test.Test/Echo")
                assert await code_of(call(b"x", metadata=ACCESS, timeout=10)) is code
                if code is Code.OK:
                    assert await code_of(call(b"x")) is Code.UNAUTHENTICATED


def test_with_a_ca_each_client_needs_its_certificate(tmp_path: Path) -> None:
    asyncio.run(check_mtls(tmp_path))


def test_it_is_not_open_to_other_machines_by_mistake(tmp_path: Path) -> None:
    cert, key, _ = certificate(tmp_path, "server")
    _, other_key, _ = certificate(tmp_path, "other")
    tls = (str(cert), str(key))
    Options("0.0.0.0:50051", TOKEN, *tls)
    Options("0.0.0.0:50051", "", *tls, str(cert))
    Options("[::1]:50051")
    for options, fault in (
        (("0.0.0.0:50051", TOKEN), "from other machines, and without TLS: give KROWL_GRPC_CERT"),
        (("node-a:50051", "", *tls), "from other machines, and by anybody: give a token"),
        ((LOCAL, TOKEN, str(cert)), "KROWL_GRPC_CERT and KROWL_GRPC_KEY need each other"),
        ((LOCAL, TOKEN, "", "", str(cert)), "KROWL_GRPC_CLIENT_CA needs KROWL_GRPC_CERT"),
        ((LOCAL, TOKEN, str(cert), str(other_key)), "not a certificate and its own key in PEM"),
        ((LOCAL, TOKEN, str(tmp_path / "x"), str(key)), "cannot be read (No such file"),
        ((LOCAL, TOKEN, *tls, str(key)), "KROWL_GRPC_CLIENT_CA"),
    ):
        with pytest.raises(SettingsError) as refused:
            Options(*options)
        assert fault in str(refused.value)


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = Options(f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(SettingsError, match=r"cannot be listened at \(Address already in use"):
            options.check_place()
        with pytest.raises(SettingsError, match="cannot be listened at"):
            asyncio.run(start(options))


async def start(options: Options) -> None:
    made = GrpcServer(options)
    try:
        await made.start()
    finally:
        await made.stop()
