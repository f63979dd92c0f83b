"""Scrapy responses and captures of exchanges."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING

from scrapy.http import Headers, HtmlResponse
from scrapy.responsetypes import responsetypes
from w3lib.encoding import DEFAULT_ENCODING_TRANSLATION

from krowlspider.archive.write.capture import Capture, Wire
from krowlspider.urls.media_type import HTML, computed_type
from krowlspider.urls.page.headers import values_of

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from krowlspider.fetch.exchange import Exchange

# No codec has the name "unknown", so a page that declares punycode has no charset. Browsers do not
# know punycode, and Python decodes it in quadratic time.
DEFAULT_ENCODING_TRANSLATION["punycode"] = "unknown"


@lru_cache(maxsize=65_536)
def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Return an address; None for empty text: behind a proxy the address is unknown."""
    return ip_address(text) if text else None


def response_of(request: Request, exchange: Exchange, headers: Headers, body: bytes) -> Response:
    response = _class_of(headers, exchange.url, body)(
        url=exchange.url,
        status=exchange.status,
        body=body,
        request=request,
        ip_address=_address(exchange.peer.address),
        protocol=f"HTTP/{exchange.version}",
        certificate=exchange.peer.certificate,
    )
    # Set afterwards, because the constructor would copy the headers name by name.
    response.headers = headers
    return response


def _class_of(headers: Headers, url: str, body: bytes) -> type[Response]:
    """Return the class of a response: of HTML whenever browsers take it for HTML, else Scrapy's."""
    options = values_of(headers, b"X-Content-Type-Options")
    if computed_type(values_of(headers, b"Content-Type"), options, body).essence in HTML:
        return HtmlResponse
    return responsetypes.from_args(headers=headers, url=url, body=body)


def capture_of(exchange: Exchange, identity: str) -> Capture:
    media_type, stored = b"", exchange.stored
    for name, value in exchange.headers:
        if name.lower() == b"content-type":
            media_type = value
            break
    return Capture(
        identity=identity,
        url=exchange.url,
        request_bytes=exchange.request_bytes,
        response_bytes=exchange.response_bytes,
        head=exchange.head_length,
        payload=exchange.body,
        status=exchange.status,
        media_type=media_type.decode("latin-1"),
        started=exchange.times.started,
        truncated=exchange.truncated,
        wire=Wire(exchange.peer.address or None, exchange.version, exchange.peer.tls),
        stored=stored.mapped if stored is not None else None,
        stored_size=stored.size if stored is not None else 0,
    )


def headers_of(pairs: list[tuple[bytes, bytes]]) -> Headers:
    # `Headers.appendlist` is quadratic in the lines of a hostile head. `Headers.update` is not
    # needed: names and values are normalised already.
    headers = Headers()
    grouped: dict[bytes, list[bytes]] = {}
    for name, value in pairs:
        grouped.setdefault(name.title(), []).append(value)
    dict.update(headers, grouped)
    return headers
