"""Where a server of gRPC listens, and who may call it. Nothing here imports gRPC."""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from krowlspider.config.checks import host_and_port
from krowlspider.errors import SettingsError
from krowlspider.job.monitoring.access import is_loopback

if TYPE_CHECKING:
    from typing import Self

    from scrapy.settings import BaseSettings


class Options(Struct, frozen=True):
    """A server's ``address``, HOST:PORT, with port 0 for any free one.

    Calls need ``token``; "" lets everybody call. ``cert`` and ``key`` are files in PEM for TLS, and
    ``client_ca`` is one that has signed the certificate of each client; "" is without.

    :raises SettingsError: these are not safe, or a file cannot be used
    """

    address: str
    token: str = ""
    cert: str = ""
    key: str = ""
    client_ca: str = ""

    def __post_init__(self) -> None:
        if (fault := self._fault()) is not None:
            raise SettingsError(fault)

    @classmethod
    def of(cls, settings: BaseSettings, token: str) -> Self:
        """Return the options of settings, with the token of the crawl."""
        files = (str(settings[f"KROWL_GRPC_{each}"]) for each in ("CERT", "KEY", "CLIENT_CA"))
        return cls(settings["KROWL_GRPC"], token, *files)

    @property
    def place(self) -> tuple[str, int]:
        """Return host and port."""
        place = host_and_port(self.address)
        assert place is not None
        return place

    def _fault(self) -> str | None:
        if host_and_port(self.address) is None:
            return f"KROWL_GRPC={self.address!r} is not HOST:PORT: give 127.0.0.1:50051"
        if bool(self.cert) != bool(self.key):
            return (
                "KROWL_GRPC_CERT and KROWL_GRPC_KEY need each other: give the files in PEM of the"
                " server's certificate and of its private key"
            )
        if self.client_ca and not self.cert:
            return "KROWL_GRPC_CLIENT_CA needs KROWL_GRPC_CERT and KROWL_GRPC_KEY: give them"
        if not is_loopback(self.place[0]) and not self.cert:
            return (
                f"KROWL_GRPC={self.address} is reached from other machines, and without TLS: give"
                " KROWL_GRPC_CERT and KROWL_GRPC_KEY, or listen at 127.0.0.1"
            )
        if not is_loopback(self.place[0]) and not (self.token or self.client_ca):
            return (
                f"KROWL_GRPC={self.address} is reached from other machines, and by anybody: give a"
                " token or KROWL_GRPC_CLIENT_CA, or listen at 127.0.0.1"
            )
        return self._fault_of_files()

    def _fault_of_files(self) -> str | None:
        if not self.cert:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        # None would have the key's password asked for at the terminal.
        try:
            context.load_cert_chain(self.cert, self.key, password=lambda: "")
        except (OSError, ValueError) as error:
            why = _why(error, "certificate and its own key")
            return f"KROWL_GRPC_CERT {self.cert} with KROWL_GRPC_KEY {self.key}: {why}"
        if self.client_ca:
            try:
                context.load_verify_locations(self.client_ca)
            except OSError as error:
                return f"KROWL_GRPC_CLIENT_CA {self.client_ca}: {_why(error, 'certificate')}"
        return None

    def files(self) -> tuple[bytes, bytes, bytes | None]:
        """Return the contents of key, certificate and CA of the clients. Raises OSError."""
        key, cert = Path(self.key).read_bytes(), Path(self.cert).read_bytes()
        return key, cert, Path(self.client_ca).read_bytes() if self.client_ca else None

    def check_place(self) -> None:
        """:raises SettingsError: the address is not this machine's, or its port is taken"""
        host, port = self.place
        try:
            family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.create_server((str(place[0]), port), family=family):
                pass
        except OSError as error:
            # That of asyncio and socket has the address in its text.
            number = error.errno or 0
            why = os.strerror(number) if number > 0 else error.strerror
            raise SettingsError(
                f"KROWL_GRPC={self.address} cannot be listened at ({why}): give another address or"
                " port, or port 0 for any free one"
            ) from error


def check_before_start(settings: BaseSettings) -> None:
    """Check the options of a crawl that makes its token only when it starts.

    :raises SettingsError: as `Options`, or the port is taken
    """
    Options.of(settings, settings["KROWL_CONTROL_TOKEN"] or "a new one").check_place()


def _why(error: Exception, what: str) -> str:
    if isinstance(error, ssl.SSLError):
        return f"not a {what} in PEM ({error.reason or error})"
    return f"cannot be read ({getattr(error, 'strerror', None) or error})"
