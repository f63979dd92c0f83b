"""How clients reach a crawl: host names that are accepted, and files with URLs and secrets.

The names by which clients may ask a server: those in the Host header of their requests. Another
site's page can lead a browser here by a name of its own, whose DNS answer is the address of this
server. Then the browser takes the server for that site, and lets the page read the answers.
"""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from ipaddress import ip_address
from secrets import token_hex
from typing import TYPE_CHECKING

from msgspec import Struct

from krowlspider.job.folder import write_private

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::[0-9]*)?")


def is_loopback(host: str) -> bool:
    """Return whether an address to listen at is reached by this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class HostNames(Struct, frozen=True):
    """The ``names`` of a server, beside the address at which a request has reached it.

    With ``is_local`` it is asked by loopback addresses and localhost alone.
    """

    names: frozenset[str] = frozenset()
    is_local: bool = True

    @classmethod
    def of(cls, listens_at: str, more: Iterable[str] = ()) -> HostNames:
        """Return the names of a server that listens at an address or name, with ``more`` that a
        person gives."""
        own = {listens_at, socket.gethostname(), *more}
        return cls(frozenset(map(_plain, own)), is_loopback(listens_at) and not [*more])

    def has(self, header: str, reached: str) -> bool:
        """Return whether a Host header is a name of this server, which was ``reached`` at an
        address."""
        if (found := _HOST.fullmatch(header)) is None:
            return False
        name, own = _plain(found[1]), _plain(reached)
        if is_loopback(own) and is_loopback(name):
            return True
        return not self.is_local and (name in self.names or name == own)


def _plain(name: str) -> str:
    name = name.lower().strip("[]").removesuffix(".")
    try:
        address = ip_address(name)
    except ValueError:
        return name
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


# The names of the notes of URLs, and those of the files of secrets.
PAGE, METRICS = "live-page", "metrics-page"
CONTROL_TOKEN = "control-token"  # noqa: S105
TELNET_PASSWORD = "telnet-password"  # noqa: S105


def note_url(jobdir: Path, note: str, url: str) -> None:
    """Note a URL. On a full disk there is no note, and `scrapy top` must be given the URL."""
    with suppress(OSError):
        (jobdir / note).write_text(f"{url}\n", encoding="ascii")


def forget_urls(jobdir: Path) -> None:
    for note in (PAGE, METRICS):
        (jobdir / note).unlink(missing_ok=True)


def noted_url(jobdir: Path, note: str) -> str | None:
    """Return the URL that the last crawl has noted; None without a note.

    After a kill the note is still there, and another crawl may have the address: ask the page.
    """
    with suppress(OSError, UnicodeDecodeError):
        url = (jobdir / note).read_text(encoding="ascii").strip()
        return url if url.startswith("http://") else None
    return None


class Secret:
    """A secret that is ``given``, or else a new one, which is never logged."""

    def __init__(self, given: str):
        self.text = given or token_hex(16)
        self._is_new = not given
        self._file: Path | None = None

    def keep(self, file: Path) -> str:
        """Write a new secret to a file that only its owner can read. Return where a person finds
        it; "" for one that was given."""
        if not self._is_new:
            return ""
        write_private(file, self.text)
        self._file = file
        return f"in {file}"

    def forget(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)
