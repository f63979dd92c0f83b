"""The files that sheets name: credentials and cookies."""

from __future__ import annotations

from base64 import b64encode
from functools import lru_cache
from ipaddress import ip_address
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.errors import counted
from krowlspider.policies.sheets import BadPolicies
from krowlspider.urls.canonical import domain_of, host_of, name_of, path_start

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from krowlspider.policies.sheets import Policies, Sheet

# Bytes of a file that a sheet names.
_SIZE_MAX = 1024 * 1024
# Names of hosts whose cookies are at hand.
_NAMES = 1000
# The fields of a cookie, with tabs between them: domain, whether it is for names below it, path,
# whether it is for https only, the time at which it expires, name, value.
_FIELDS = 7
_FLAGS = {"TRUE", "FALSE"}
_HTTP_ONLY = "#HttpOnly_"


class SheetFiles:
    """The credentials and cookies that sheets name, by their paths as written there.

    :raises BadPolicies: a file cannot be used
    """

    def __init__(self, policies: Policies):
        self.auth: dict[str, bytes] = {}
        self.cookies: dict[str, Cookies] = {}
        folder, errors = Path(policies.path).parent, list[str]()
        for sheet in policies.sheets:
            if (fault := _bad_concurrency(sheet)) is not None:
                errors.append(f"{policies.path} line {sheet.line_of('concurrency')}: {fault}")
            for key, value, line in _named(sheet):
                try:
                    if key == "auth" and value not in self.auth:
                        self.auth[value] = _read_auth(folder / value)
                    elif key == "cookies" and value not in self.cookies:
                        self.cookies[value] = _read_cookies(folder / value)
                except ValueError as error:
                    errors.append(f"{policies.path} line {line}: {key}: {error}")
        if errors:
            raise BadPolicies(errors)


def _bad_concurrency(sheet: Sheet) -> str | None:
    """Return why a sheet cannot have a concurrency; None if it can, or has none."""
    if "concurrency" not in sheet.values:
        return None
    for kind, covered in sheet.matches:
        domain = domain_of(covered.partition("/")[0])
        if domain != covered or not (kind == "below" or _is_address(covered)):
            return (
                "concurrency holds for registrable domains with all their hosts, not for"
                f" {covered}: match {domain!r}, in a sheet of its own"
            )
    return None


def _is_address(host: str) -> bool:
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _named(sheet: Sheet) -> Iterator[tuple[str, str, int]]:
    """Yield key, path and line of each file that a sheet names."""
    for key in ("auth", "cookies"):
        if (value := sheet.values.get(key)) is not None:
            yield key, value, sheet.line_of(key)


def _read(path: Path) -> str:
    """:raises ValueError: the file cannot be read, or is no UTF-8"""
    try:
        if path.exists() and not path.is_file():
            raise ValueError(f"{path} is not a file")
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > _SIZE_MAX:
        raise ValueError(f"{path} has more than {_SIZE_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no UTF-8 text") from error


def _read_auth(path: Path) -> bytes:
    """Return the value of Authorization (RFC 7617) for a file with a line ``user:password``.

    :raises ValueError: the file cannot be read, or is none
    """
    lines = _read(path).rstrip("\r\n").splitlines()
    if len(lines) != 1:
        has = counted(len(lines), "line")
        raise ValueError(f"{path} has {has}: write user:password on one line")
    if ":" not in lines[0] or not lines[0].isprintable():
        raise ValueError(f"{path} line 1 is not user:password")
    return b"Basic " + b64encode(lines[0].encode())


def _read_cookies(path: Path) -> Cookies:
    """:raises ValueError: the file cannot be read, or has a line that is no cookie"""
    found = []
    for number, line in enumerate(_read(path).split("\n"), 1):
        text = line.rstrip("\r").removeprefix(_HTTP_ONLY)
        if not text.strip() or text.startswith("#"):
            continue
        fields = text.split("\t")
        is_cookie = len(fields) == _FIELDS and fields[1] in _FLAGS and fields[3] in _FLAGS
        if not is_cookie or not fields[2].startswith("/") or not fields[4].isdecimal():
            raise ValueError(
                f"{path} line {number} is no cookie: write domain, TRUE or FALSE, path, TRUE or"
                " FALSE, expiry in epoch seconds, name and value, with tabs between them"
            )
        if not text.isascii() or not all(field.isprintable() for field in fields):
            raise ValueError(f"{path} line {number} has characters that no cookie may have")
        domain, below, where, secure, expires, name, value = fields
        cookie = _Cookie(
            domain.lower().lstrip("."),
            is_below=below == "TRUE",
            path=where,
            is_secure=secure == "TRUE",
            expires=int(expires) or inf,
            pair=(f"{name}={value}" if name else value).encode(),
        )
        found.append(cookie)
    return Cookies(found)


class _Cookie(NamedTuple):
    """A cookie for a name, with ``is_below`` for all names below it too. ``expires`` is in epoch
    seconds, infinity for a cookie of the session."""

    domain: str
    is_below: bool
    path: str
    is_secure: bool
    expires: float
    pair: bytes


class Cookies:
    """The cookies of a file. RFC 6265, section 5.4, decides which of them a request gets."""

    def __init__(self, cookies: Iterable[_Cookie]):
        self._by_domain: dict[str, list[_Cookie]] = {}
        for cookie in cookies:
            self._by_domain.setdefault(cookie.domain, []).append(cookie)
        self._of_name = lru_cache(_NAMES)(self._found)

    def sent(self, url: str, now: float) -> bytes:
        """Return the value of the header Cookie for a URL at a time; empty without one."""
        if not (cookies := self._of_name(name_of(host_of(url)))):
            return b""
        path = url[path_start(url) :].partition("?")[0]
        is_https = url.startswith("https:")
        return b"; ".join(
            cookie.pair
            for cookie in cookies
            if (is_https or not cookie.is_secure)
            and cookie.expires > now
            and path.startswith(cookie.path)
            and (cookie.path[-1] == "/" or path[len(cookie.path) :][:1] in ("", "/"))
        )

    def _found(self, name: str) -> list[_Cookie]:
        """Return the cookies of a name, those of longer paths first."""
        parts = name.split(".")
        names = [".".join(parts[at:]) for at in range(len(parts))]
        found = [
            cookie
            for each in names
            for cookie in self._by_domain.get(each, ())
            if each == name or cookie.is_below
        ]
        return sorted(found, key=lambda cookie: -len(cookie.path))
