"""The key of an index line: the SURT of a URL, and the query that a request's body adds. Pure.

The key (SURT) by which pywb and similar tools look up a URL. The key equals, to the byte, that of
the ``surt`` package's default canonicaliser. pywb and cdxj-indexer use it, and find nothing in an
index with other keys. So its oddities are kept: paths in lower case, a doubled slash read as one,
session ids cut out of the names of other parameters.

The query that a request with another method than GET adds to its URL, as in pywb. Replay finds the
response by a URL to which the method and the request's body are added:
``/search?__wb_method=POST&q=x``. The rules are those of pywb's ``MethodQueryCanonicalizer``. A body
in AMF, the format of Flash, is added as bytes, without a parser for it.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from contextlib import suppress
from email.parser import BytesParser
from socket import inet_aton, inet_ntoa
from typing import NamedTuple
from urllib.parse import quote_from_bytes, unquote_plus, unquote_to_bytes, urlencode

from krowlspider.archive.payload import header, payload_of, without_head
from krowlspider.urls.gemini import PORT, SCHEME

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
# A URL without escapes or user, whose host is a name or an IPv4 address in its usual form.
_ORDINARY = re.compile(
    r"http(s?)://(?:www[0-9]*\.)?"
    rf"([a-z0-9_-]+(?:\.[a-z0-9_-]+)*(?<![0-9])|(?!0){_OCTET}(?:\.{_OCTET}){{3}})"
    r"(?::([1-9][0-9]{0,3}|[1-5][0-9]{4}))?"
    r"(/[!$&-.0-9:;=@A-Z_a-z~/]*)(?:\?([!$&-.0-9:;=@A-Z_a-z~/?]+))?"
)
_GEMINI = re.compile(r"gemini://([^/?#]+)([^#]*)", re.IGNORECASE)
_LINE_BREAK = re.compile(rb"[\n\r\t]")
_SCHEME = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*:")
_DOUBLED_SCHEME = re.compile(rb"^(?:https?://)+(?=https?://)")
# RFC 3986, appendix B, for a URL with a scheme.
_PARTS = re.compile(
    rb"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.DOTALL
)
_PORT = re.compile(rb"[0-9]{1,9}")
_DEFAULT_PORTS = {b"http": 80, b"https": 443}
_WWW = re.compile(r"^www[0-9]*\.")
# A host read as an IPv4 address, as inet_aton does: decimal or octal numbers.
_ADDRESS = re.compile(rb"[0-9]+|[1-9][0-9]*(?:\.[0-9]+){1,3}|0[0-7]*(?:\.[0-7]+){1,3}")
# Punctuation not escaped in a key: all of ASCII but "%" and "#".
_PLAIN = "!\"$&'()*+,-./:;<=>?@[\\]^_`{|}~"
# The path segment in which ASP.NET keeps a session id.
_PATH_SESSIONS = (
    re.compile(r"(.*/)\((?:[a-z]\([0-9a-z]{24}\))+\)/([^?]+\.aspx.*)"),
    re.compile(r"(.*/)\([0-9a-z]{24}\)/([^?]+\.aspx.*)"),
)
# Session ids in a query. The last match of each expression is removed, with the "&" behind it.
_QUERY_SESSIONS = tuple(
    re.compile(f"(.*){session}(?:&(.*))?")
    for session in (
        "jsessionid=[0-9a-z]{32}",
        "phpsessid=[0-9a-z]{32}",
        "sid=[0-9a-z]{32}",
        "aspsessionid[a-z]{8}=[a-z]{24}",
        # Possessive, so that "cfid=cfid=..." is not searched again and again.
        "cfid=[^&]++&cftoken=[^&]++",
    )
)
_MAYBE_SESSION = re.compile("sid=|sessionid|cfid=")


def surt(url: str) -> str:
    """Return the key of ``url``, in printable ASCII without blanks.

    A URL with an invalid port is returned unchanged, as in cdxj-indexer. The key of a Gemini URL
    begins with its scheme, so that no look-up of a web page finds it. Its path and query are kept
    as they are: a query is what a person wrote, and no list of parameters.
    """
    ordinary = _ORDINARY.fullmatch(url)
    if ordinary is not None:
        secure, host, port, path, query = ordinary.groups()
        if "//" not in path and "/." not in path:
            place = f":{port}" if port and port != ("443" if secure else "80") else ""
            return f"{_reversed(host)}{place}){_path(path)}{_query(query) if query else ''}"
    try:
        if gemini := _GEMINI.match(url.strip()):
            return _gemini_key(*gemini.groups())
        return _key(url.encode())
    except ValueError:
        return url


def _gemini_key(authority: str, rest: str) -> str:
    """Return the key of a Gemini URL. Raises ValueError for an invalid port."""
    name, port = _name_and_port(authority.encode())
    place = "" if port in {0, PORT} else f":{port}"
    below = _escape(_LINE_BREAK.sub(b"", rest.encode()), kept="%")
    return f"{SCHEME}{_reversed(_host(name))}{place}){'' if below[:1] == '/' else '/'}{below}"


def _key(url: bytes) -> str:
    """Return the key of any URL. Raises ValueError for an invalid port."""
    url = _LINE_BREAK.sub(b"", url.strip())
    if not url:
        return "-"
    if not _SCHEME.match(url):
        url = b"http://" + url
    parts = _PARTS.fullmatch(_DOUBLED_SCHEME.sub(b"", url))
    assert parts is not None
    scheme, authority, path, query = parts.groups(default=b"")
    name, port = _name_and_port(authority)
    if path and not name and scheme.startswith(b"http"):
        # Browsers read http:///host/path as http://host/path.
        name, _, path = path.lstrip(b"/").partition(b"/")
        path = b"/" + path
    path, host = _unescape(path), _host(name)
    if host:
        massaged = host if scheme == b"dns" else _WWW.sub("", host)
        same = port in {0, _DEFAULT_PORTS.get(scheme.lower())}
        place = f"{_reversed(massaged)}{'' if same else f':{port}'})"
        path = _normal_path(path)
    else:
        place = f"{scheme.decode()}:"
    below = _path(_escape(path))
    asked = _query(_escape(_unescape(query)))
    return place + (below or "/"[: len(asked)]) + asked


def _name_and_port(authority: bytes) -> tuple[bytes, int]:
    """Return the name and the port of a host; 0 without a port. Raises ValueError."""
    name = authority.rstrip(b":").rpartition(b"@")[2]
    before, bracket, inside = name.partition(b"[")
    if bracket:
        name, _, behind = inside.partition(b"]")
        port = behind.partition(b":")[2]
    else:
        name, _, port = before.partition(b":")
    if not port:
        return name, 0
    if not _PORT.fullmatch(port) or int(port) > 65535:
        raise ValueError(f"not a port: {port!r}")
    return name, int(port)


def _host(name: bytes) -> str:
    name = _unescape(name)
    if not name.isascii():
        with suppress(UnicodeError):
            name = name.decode(errors="ignore").encode("idna")
    name = name.replace(b"..", b".").strip(b".")
    return _address(name) or _escape(name.lower()).lower()


def _address(name: bytes) -> str | None:
    """Return the dotted IPv4 address that a host name is read as, None if it is none."""
    if not _ADDRESS.fullmatch(name):
        return None
    if name.isdigit():
        address = (int(name) & 0xFFFFFFFF).to_bytes(4)
    else:
        try:
            address = inet_aton(name.decode())
        except OSError:
            return None
    return inet_ntoa(address)


def _reversed(host: str) -> str:
    return ",".join(host.split(".")[::-1])


def _normal_path(path: bytes) -> bytes:
    """Return the path with "." and ".." resolved and single slashes; a leading ".." stays."""
    kept: list[bytes] = []
    for segment in path.split(b"/")[1:]:
        if segment == b".." and kept:
            kept.pop()
        elif segment != b".":
            kept.append(segment)
    return b"/" + b"/".join([segment for segment in kept[:-1] if segment] + kept[-1:])


def _path(path: str) -> str:
    path = path.lower()
    if "(" in path and ".aspx" in path:
        for session in _PATH_SESSIONS:
            if found := session.fullmatch(path):
                path = found[1] + found[2]
    return path[:-1] if path.endswith("/") and len(path) > 1 else path


def _query(query: str) -> str:
    """Return the query with its "?", parameters sorted by name and value; empty for no query."""
    query = query.lower()
    if _MAYBE_SESSION.search(query):
        for session in _QUERY_SESSIONS:
            if found := session.fullmatch(query):
                query = found[1] + (found[2] or "")
    if "&" in query and len(query) > 1:
        query = "&".join(sorted(query.split("&"), key=_name_and_value))
    return "?" + query if query else ""


def _name_and_value(parameter: str) -> list[str]:
    return parameter.split("=", 1)


def _unescape(text: bytes) -> bytes:
    """Percent-decode the text until nothing changes."""
    while (once := unquote_to_bytes(text)) != text:
        text = once
    return text


def _escape(text: bytes, kept: str = "") -> str:
    return quote_from_bytes(text, safe=_PLAIN + kept)


# The methods that replay looks up by the URL alone.
_PLAIN_FORM = (b"GET ", b"HEAD ")
_METHOD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ")
# Characters of a body that are added at most.
_ADDED = 4096
# Bytes that cdxj-indexer reads of a body without Content-Length.
_WITHOUT_LENGTH = 8192
_BOUNDARY = re.compile(r"[ -~]{0,200}[!-~]")


class RequestQuery(NamedTuple):
    """The method of a request, in upper case, and its body as a query."""

    method: str
    body: str

    def added_to(self, url: str) -> str:
        """Return ``url`` with the method and the body in its query."""
        added = f"{url}{'&' if '?' in url else '?'}__wb_method={self.method}"
        return f"{added}&{self.body}" if self.body else added


def is_plain_request(message: bytes) -> bool:
    """Return whether a request is found by its URL alone."""
    return message.startswith(_PLAIN_FORM)


def query_of(message: bytes) -> RequestQuery | None:
    """Return what the request ``message`` adds to its URL; None if it adds nothing."""
    if is_plain_request(message):
        return None
    method = _METHOD.match(message)
    if method is None:
        return None
    name = method[1].decode().upper()
    if name not in {"POST", "PUT"}:
        return RequestQuery(name, "")
    length = header(message, "Content-Length")
    if length:
        # isdecimal() knows digits of other scripts, which int() takes as well.
        size = int(length) if length.isdecimal() and len(length) < 20 else 0
        body = without_head(message)[:size]
    else:
        body = payload_of(message)[:_WITHOUT_LENGTH]
        size = len(body)
    return RequestQuery(
        name, _query_of_body(body, header(message, "Content-Type"))[:_ADDED] if size else ""
    )


def _query_of_body(body: bytes, kind: str) -> str:
    """Return a body of the type ``kind`` as a query."""
    try:
        if kind.startswith("application/x-www-form-urlencoded"):
            return unquote_plus(body.decode())
        if kind.startswith("multipart/"):
            return _of_parts(body, kind)
        if kind.startswith(("application/json", "text/plain")):
            return _of_json(body)
    except (ValueError, OverflowError, RecursionError):
        # pywb ignores what claims to be JSON and is none.
        if kind.startswith("application/json"):
            return ""
    return f"__wb_post_data={b64encode(body).decode()}"


def _of_parts(body: bytes, kind: str) -> str:
    """Return the parts of a form as a query. Raises ValueError without a valid boundary."""
    head = f"Content-Type: {kind}\r\n\r\n".encode("latin-1", "replace")
    form = BytesParser().parsebytes(head + body)
    if not _BOUNDARY.fullmatch(str(form.get_boundary(""))):
        raise ValueError("no boundary")
    fields: list[tuple[str, str | bytes]] = []
    for part in form.walk():
        if part.is_multipart() or part is form:
            continue
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        name = str(part.get_param("name", "None", "content-disposition"))
        # A file is bytes in any encoding; a field is text.
        is_file = part.get_filename() is not None
        fields.append((name, content if is_file else content.decode(errors="replace")))
    return urlencode(fields)


def _of_json(body: bytes) -> str:
    """Return the values in a JSON text by their names; those of lists have the name of the list.

    Raises ValueError, OverflowError and RecursionError for a text that is not used.
    """
    found: dict[str, str] = {}
    counts: dict[str, int] = {}

    def add(value: object, name: str = "") -> None:
        if isinstance(value, dict):
            for key, each in value.items():
                add(each, key)
        elif isinstance(value, list):
            for each in value:
                add(each, name)
        elif name:
            key = name
            if name in found:
                counts[name] = counts.get(name, 1) + 1
                key = f"{name}.{counts[name]}_"
            found[key] = _as_in_javascript(value)

    add(json.loads(body))
    return urlencode(found)


def _as_in_javascript(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float) and math.modf(value)[0] == 0.0:
        return str(int(value))
    return str(value)
