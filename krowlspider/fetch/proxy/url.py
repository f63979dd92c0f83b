"""Parse the URL of a proxy."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import lru_cache
from urllib.parse import unquote_to_bytes, urlsplit

from krowlspider.fetch.errors import ProxyInvalid
from krowlspider.fetch.http.request import Proxy

SCHEMES = frozenset({"http"})
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
# Proxies remembered. A crawl may rotate through many.
_KEPT = 1024


@lru_cache(maxsize=_KEPT)
def parse_proxy(url: str, authorization: bytes = b"") -> Proxy:
    """Return the proxy of a URL such as ``http://user:password@host:port``.

    A URL without a scheme is one of http, as in Scrapy. ``authorization`` is the value of a
    Proxy-Authorization header; credentials in the URL take precedence.

    :raises ProxyInvalid: the URL names no host or port, or another scheme
    """
    text = url if "://" in url else f"http://{url.removeprefix('//')}"
    # Neither a log nor the archive may hold credentials.
    shown = text.partition("://")[0] + "://" + text.partition("://")[2].rpartition("@")[2]
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ProxyInvalid(f"proxy {shown!r} is no URL: {error}") from error
    if parts.scheme not in SCHEMES:
        raise ProxyInvalid(
            f"proxy {shown!r} has the scheme {parts.scheme}, which is not one of"
            f" {', '.join(sorted(SCHEMES))}"
        )
    if not host or not port:
        raise ProxyInvalid(f"proxy {shown!r} has no host or no port: write http://HOST:PORT")
    if parts.username is not None:
        user, _, password = parts.netloc.rpartition("@")[0].partition(":")
        credentials = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
        authorization = b"Basic " + b64encode(credentials)
    if _CONTROL.search(authorization):
        raise ProxyInvalid(f"proxy {shown!r}: Proxy-Authorization has control characters")
    return Proxy(parts.scheme, host, port, authorization)
