"""The query that a request with another method than GET adds to its URL, as in pywb. Pure.

Replay finds the response by a URL to which the method and the request's body are added:
``/search?__wb_method=POST&q=x``. The rules are those of pywb's ``MethodQueryCanonicalizer``. A body
in AMF, the format of Flash, is added as bytes, without a parser for it.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from email.parser import BytesParser
from typing import NamedTuple
from urllib.parse import unquote_plus, urlencode

from krowlspider.archive.payloads.payload import header, payload_of, without_head

# The methods that replay looks up by the URL alone.
_PLAIN = (b"GET ", b"HEAD ")
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
    return message.startswith(_PLAIN)


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
        name, _query(body, header(message, "Content-Type"))[:_ADDED] if size else ""
    )


def _query(body: bytes, kind: str) -> str:
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
