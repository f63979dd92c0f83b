"""Parse the URL of a proxy."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from functools import lru_cache
from urllib.parse import unquote_to_bytes, urlsplit

from krowlspider.fetch.errors import ProxyInvalid
from krowlspider.fetch.http.request import Proxy

# With socks5 as with socks5h the proxy resolves the names of targets.
SCHEMES = frozenset({"http", "socks5", "socks5h"})
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
# Proxies remembered. A crawl may rotate through many.
_KEPT = 1024


@lru_cache(maxsize=_KEPT)
def parse_proxy(url: str, authorization: bytes = b"") -> Proxy:
    """Return the proxy of a URL such as ``http://user:password@host:port``, or ``socks5://...``.

    A URL without a scheme is one of http, as in Scrapy. ``authorization`` is the value of a
    Proxy-Authorization header; credentials in the URL take precedence.

    :raises ProxyInvalid: the URL names no host or port, or another scheme; or ``authorization`` has
        control characters, or is not user and password, which SOCKS5 needs
    """
    text = url if "://" in url else f"http://{url.removeprefix('//')}"
    # Neither a log nor the archive may hold credentials.
    shown = text.partition("://")[0] + "://" + text.partition("://")[2].rpartition("@")[2]
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")
    except ValueError:
        # Its text may have a part of the password.
        raise ProxyInvalid(
            f"proxy {shown!r} is no URL: write http://USER:PASSWORD@HOST:PORT, and in user and"
            " password %2F for /, %23 for #, %3F for ?"
        ) from None
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
    if parts.scheme != "http" and not _is_password(authorization):
        raise ProxyInvalid(f"proxy {shown!r} takes user and password, no other authorization")
    return Proxy(parts.scheme, host, port, authorization)


def _is_password(authorization: bytes) -> bool:
    """Return whether a header's value is empty, or user and password (RFC 7617)."""
    scheme, _, encoded = authorization.partition(b" ")
    try:
        return not authorization or (scheme == b"Basic" and b":" in b64decode(encoded))
    except ValueError:
        return False
