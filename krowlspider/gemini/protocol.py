"""The Gemini protocol: request line, header of an answer, what a status means, media type. Pure.

Source: Gemini network protocol specification 0.24.1, geminiprotocol.net/docs. Where it is stricter
than 0.16.1, which most servers were written for, the place says which of the two is followed.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

SCHEME = "gemini"
PORT = 1965
# Bytes of a URL in a request.
URL_MAX = 1024
# Bytes of the META of a header: 0.16.1. The later specification has no limit.
META_MAX = 1024
# Status, space, META, CR and LF.
HEADER_MAX = 2 + 1 + META_MAX + 2
# Redirects of which a client follows no more.
REDIRECTS_MAX = 5

_NOT_IN_URL = re.compile(r"[^\x21-\x7e]")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@]+)(?::([0-9]{1,5}))?")


class GeminiServer(NamedTuple):
    """The server of a URL. An IPv6 host has no brackets."""

    host: str
    port: int

    @property
    def server(self) -> str:
        """Return the name under which its certificate is kept, with the port always."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def server_of(url: str) -> GeminiServer:
    """Return the server of a normalised gemini URL.

    :raises ValueError: it is no such URL, with the reason
    """
    scheme, separator, rest = url.partition("://")
    if scheme != SCHEME or not separator:
        raise ValueError(f"not a gemini URL: {url[:100]!r}")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        raise ValueError(f"a gemini URL has no user information: {url[:100]!r}")
    found = _AUTHORITY.fullmatch(authority)
    if found is None or (port := int(found[2] or PORT)) > 65_535 or not port:
        raise ValueError(f"no host, or no valid port, in the gemini URL {url[:100]!r}")
    host = found[1].removeprefix("[").removesuffix("]").lower()
    # As in `host_of`: a name with its root dot is the same host.
    if host != ".":
        host = host.removesuffix(".")
    return GeminiServer(host, port)


def request_line(url: str) -> bytes:
    """Return the request for a normalised gemini URL.

    :raises ValueError: no server may answer it, with the reason
    """
    server_of(url)
    if found := _NOT_IN_URL.search(url):
        raise ValueError(f"a gemini URL is not escaped: it has {found[0]!r}")
    if "#" in url:
        raise ValueError("a request has no fragment")
    if len(url) > URL_MAX:
        raise ValueError(f"a gemini URL of {len(url)} bytes, and at most {URL_MAX} may be sent")
    return url.encode("ascii") + b"\r\n"


class StatusKind(Enum):
    """What a client does with an answer. SLOW_DOWN is a temporary failure of its own."""

    INPUT = "input"
    SUCCESS = "success"
    REDIRECT = "redirect"
    TEMPORARY_FAILURE = "temporary_failure"
    SLOW_DOWN = "slow_down"
    PERMANENT_FAILURE = "permanent_failure"
    CERTIFICATE = "certificate"


class StatusMeaning(NamedTuple):
    """The meaning of a status. ``reason`` is one word of it, for drops and counters."""

    kind: StatusKind
    reason: str


_MEANINGS = {
    10: StatusMeaning(StatusKind.INPUT, "input"),
    11: StatusMeaning(StatusKind.INPUT, "sensitive_input"),
    20: StatusMeaning(StatusKind.SUCCESS, "success"),
    30: StatusMeaning(StatusKind.REDIRECT, "temporary_redirect"),
    31: StatusMeaning(StatusKind.REDIRECT, "permanent_redirect"),
    40: StatusMeaning(StatusKind.TEMPORARY_FAILURE, "temporary_failure"),
    41: StatusMeaning(StatusKind.TEMPORARY_FAILURE, "server_unavailable"),
    42: StatusMeaning(StatusKind.TEMPORARY_FAILURE, "cgi_error"),
    43: StatusMeaning(StatusKind.TEMPORARY_FAILURE, "proxy_error"),
    44: StatusMeaning(StatusKind.SLOW_DOWN, "slow_down"),
    50: StatusMeaning(StatusKind.PERMANENT_FAILURE, "permanent_failure"),
    51: StatusMeaning(StatusKind.PERMANENT_FAILURE, "not_found"),
    52: StatusMeaning(StatusKind.PERMANENT_FAILURE, "gone"),
    53: StatusMeaning(StatusKind.PERMANENT_FAILURE, "proxy_request_refused"),
    59: StatusMeaning(StatusKind.PERMANENT_FAILURE, "bad_request"),
    60: StatusMeaning(StatusKind.CERTIFICATE, "certificate_required"),
    61: StatusMeaning(StatusKind.CERTIFICATE, "certificate_not_authorised"),
    62: StatusMeaning(StatusKind.CERTIFICATE, "certificate_not_valid"),
}
_FIRST, _LAST = 10, 69


def meaning_of(status: int) -> StatusMeaning:
    """Return the meaning of a status from 10 to 69; an undefined one means what its first digit
    does."""
    return _MEANINGS.get(status) or _MEANINGS[status // 10 * 10]


class Header(NamedTuple):
    """The header of an answer. ``size`` is its length in bytes, line end included."""

    status: int
    meta: str
    size: int

    @property
    def is_success(self) -> bool:
        """Return whether a body follows."""
        return self.status // 10 == 2


class MalformedHeader(ValueError):
    """The start of an answer is no header; the text says why."""


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MARK = "\ufeff".encode()


def read_header(start: bytes) -> Header | None:
    """Return the header at the start of an answer; None if more of it must come.

    A status without META is accepted where 0.24.1 does: of a failure. So is a success without it,
    which was text/gemini in 0.16.1.

    :raises MalformedHeader: it is none, as soon as that is clear
    """
    end = start.find(b"\r\n", 0, HEADER_MAX)
    line = start[: end if end >= 0 else HEADER_MAX]
    _check_start(line)
    if end < 0:
        _check_open(start)
        return None
    if len(line) < 2:
        raise MalformedHeader(f"no status: {line!r}")
    status, space, meta_bytes = int(line[:2]), line[2:3], line[3:]
    if space not in (b"", b" "):
        raise MalformedHeader(f"no space after the status: {line[:20]!r}")
    try:
        meta = meta_bytes.decode()
    except UnicodeDecodeError as error:
        raise MalformedHeader(f"not UTF-8: {line[:40]!r}") from error
    if found := _CONTROL.search(meta):
        raise MalformedHeader(f"a control character, {found[0]!r}, in the META of {status}")
    meta = meta.strip(" ")
    if not meta and status // 10 in (1, 3):
        raise MalformedHeader(f"status {status} without META")
    return Header(status, meta, end + 2)


def _check_start(line: bytes) -> None:
    """Check as much of a status as there is."""
    if line.startswith(_MARK):
        raise MalformedHeader("a byte order mark before the status")
    digits = line[:2]
    # `isdigit` of bytes takes ASCII digits only.
    if digits and not digits.isdigit():
        raise MalformedHeader(f"no status: {line[:20]!r}")
    if len(digits) == 2 and not _FIRST <= int(digits) <= _LAST:
        raise MalformedHeader(
            f"status {digits.decode()}, and there is none but {_FIRST} to {_LAST}"
        )


def _check_open(start: bytes) -> None:
    """Check the start of a header whose end has not come."""
    if b"\n" in start[:HEADER_MAX]:
        raise MalformedHeader("a line feed without carriage return")
    if len(start) >= HEADER_MAX:
        raise MalformedHeader(f"no end within {HEADER_MAX} bytes")


def seconds_in(meta: str) -> int | None:
    """Return the seconds that the META of status 44 asks to wait, as 0.16.1 has it; None for any
    other text, as in 0.24.1."""
    return int(meta) if len(meta) <= 9 and meta.isascii() and meta.isdigit() else None


GEMTEXT = "text/gemini"
_UNKNOWN = "application/octet-stream"
_ESSENCE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A parameter; its value may be in quotes. No part can match what the next one begins with.
_PARAMETER = re.compile(r";[ \t]*+([^;=\"\s]++)[ \t]*+=[ \t]*+(?:\"([^\"]*+)\"|([^;]*+))")
# BCP 47, section 2.1, as far as a crawler needs it.
_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8}){0,7}")
_LANGUAGES_MAX = 10


class MediaType(NamedTuple):
    """What META says of a body.

    ``essence`` is type and subtype in lower case. ``charset`` is its label in lower case: UTF-8 for
    text that names none, "" for all else. ``languages`` are BCP 47 tags.
    """

    essence: str
    charset: str
    languages: tuple[str, ...]


def media_type(meta: str) -> MediaType:
    """Return the media type in the META of a success.

    None at all is text/gemini, as in 0.16.1, and what is no media type is of an unknown one. Of
    parameters that are repeated the first counts. Unknown ones are left out.
    """
    essence, _, _ = meta.partition(";")
    essence = essence.strip().lower() or GEMTEXT
    if not _ESSENCE.fullmatch(essence):
        essence = _UNKNOWN
    found: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(meta):
        found.setdefault(name.lower(), quoted or plain.strip())
    default = "utf-8" if essence.startswith("text/") else ""
    tags = [tag.strip() for tag in found.get("lang", "").split(",")]
    languages = [tag for tag in tags if _LANGUAGE.fullmatch(tag)]
    charset = found.get("charset", "").lower() or default
    return MediaType(essence, charset, tuple(languages[:_LANGUAGES_MAX]))
