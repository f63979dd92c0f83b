"""The normal form of a gemini URL, and the host that it belongs to.

Gemini URLs follow RFC 3986, with limits of the protocol (geminiprotocol.net, section "gemini URI
scheme"): no user name, no fragment in a request, and at most 1,024 bytes. Gemini has no ``//host``
special rules of the WHATWG standard, so ada gives the parts, and the rest is done here.

The host of a gemini URL always has its port, also the default one: so a Gemini server is a host of
its own in queue, politeness and robots.txt, beside the web server of the same name. Its domain is
that of the name.
"""

from __future__ import annotations

from functools import lru_cache

import can_ada

SCHEME = "gemini://"
PORT = 1965
# Bytes of a URL in a request. A longer one is not sent, so it is no URL that can be fetched.
URL_MAX = 1024
_DEFAULT = f":{PORT}"
# Names whose normal form is cached, about 200 bytes each.
_NAMES = 16_384
_UNPARSED = (ValueError, TypeError)


class _Switch:
    """Whether gemini URLs are URLs that this process crawls: KROWL_GEMINI."""

    is_on = False


def accept_gemini(*, is_on: bool) -> None:
    """Have `krowlspider.urls.canonical.normalise` and its siblings take gemini URLs, or refuse
    them, from now on in this process."""
    _Switch.is_on = is_on


def accepts_gemini() -> bool:
    """Return whether gemini URLs are accepted."""
    return _Switch.is_on


def is_gemini(url: str) -> bool:
    """Return whether a normalised URL is a gemini URL."""
    return url.startswith(SCHEME)


def normal_form(href: str) -> str | None:
    """Return the normal form of a gemini URL that ada has serialised, without its fragment.

    Return None if it has no name, a user name or a password, a name that is not valid, or more than
    URL_MAX bytes. The query stays as it is.
    """
    if not href.startswith(SCHEME):
        return None
    rest = href[len(SCHEME) :].partition("#")[0]
    end = min(at if (at := rest.find(mark)) >= 0 else len(rest) for mark in "/?")
    authority, path = rest[:end], rest[end:]
    if "@" in authority:
        return None
    name, port = _split(authority)
    if not name or (host := _name(name)) is None:
        return None
    url = f"{SCHEME}{host}{'' if port == _DEFAULT else port}{'' if path[:1] == '/' else '/'}{path}"
    return url if len(url) <= URL_MAX else None


def is_too_long(href: str) -> bool:
    """Return whether a URL that `normal_form` refuses is a gemini URL that is too long."""
    return href.startswith(SCHEME) and len(href.partition("#")[0]) > URL_MAX


def host_in(authority: str) -> str:
    """Return the host, always with its port, of the authority of a normalised gemini URL."""
    name, port = _split(authority)
    # A name with its root dot and the same name without it are one host.
    return f"{name[:-1] if name[-1:] == '.' and name != '.' else name}{port or _DEFAULT}"


def authority_at(host: str) -> str:
    """Return ``gemini://name``, with the port unless it is the default one, of a host from
    `host_in`: to it one robots.txt applies."""
    return SCHEME + host.removesuffix(_DEFAULT)


def path_of(url: str) -> str:
    """Return path and query of a normalised gemini URL."""
    return url[url.index("/", len(SCHEME)) :]


def _split(authority: str) -> tuple[str, str]:
    """Return the name, and the port with its colon; "" without one."""
    name, colon, port = authority.rpartition(":")
    # The last colon of "[::1]" does not precede a port.
    if not colon or not port.isdigit():
        return authority.removesuffix(":"), ""
    return name, f":{port}"


@lru_cache(maxsize=_NAMES)
def _name(name: str) -> str | None:
    """Return a name as the parser of http URLs writes it: lower case, and ASCII (IDNA)."""
    try:
        return can_ada.parse(f"http://{name}/").hostname or None
    except _UNPARSED:
        return None
