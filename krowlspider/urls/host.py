"""The host, authority and domain of a URL.

These functions run for each link, so they slice the text of a *normalised* URL and parse nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache

from xxhash import xxh3_64_intdigest

from krowlspider.internals.suffix_list import suffix_list

# Domains kept in memory, about 250 bytes each: most links lead to hosts that were met lately.
DOMAIN_CACHE = 65_536

_SCHEMES = ("https:", "http:")
# Reading the list is slow, so the list is read at import and not on the event loop.
RULES = frozenset(re.findall(r"^[^/\s]\S*", suffix_list(), re.MULTILINE))
# "kobe.jp" of the rule "*.kobe.jp".
_WILD = frozenset(rule[2:] for rule in RULES if rule[0] == "*")


def host_of(url: str) -> str:
    """Return the lower-case host of a normalised URL: its hostname, with ``:port`` if it has one.

    The default port of the scheme is left out, and IPv6 is in brackets. The http and the https site
    of a name are one host.

    :raises ValueError: ``url`` is not an absolute http(s) URL with a path
    """
    parts = url.split("/", 3)
    if len(parts) != 4 or parts[0] not in _SCHEMES or parts[1] or not parts[2]:
        raise ValueError(f"not a normalised http(s) URL: {url[:200]!r}")
    host = parts[2]
    # A name with its root dot and the same name without it are one host.
    if host[-1] == ".":
        return host[:-1] or host
    return host.replace(".:", ":") if ".:" in host and host[:2] != ".:" else host


def authority_of(url: str) -> str:
    """Return ``scheme://host[:port]`` of a normalised URL, to which one robots.txt applies.

    Host and errors are those of `host_of`.
    """
    return f"{url.partition(':')[0]}://{host_of(url)}"


def position_of(domain: str) -> int:
    """Return the position of a domain in the ring of a cluster, below 2**64."""
    return xxh3_64_intdigest(domain.encode())


@lru_cache(maxsize=DOMAIN_CACHE)
def domain_of(host: str) -> str:
    """Return the registrable domain of a host, without port, by the whole Public Suffix List.

    The domain of a name under an unknown suffix is its last two labels, by the list's default rule.
    An IP address, a public suffix and a single label are their own domain.
    """
    if host.startswith("["):
        return host[: host.index("]") + 1]
    given = host.partition(":")[0]
    name = given.rstrip(".")
    labels = name.split(".")
    suffix = _suffix_of(".".join(map(_as_listed, labels)) if "xn--" in name else name)
    if not suffix:
        return given if labels[-1].isdigit() else ".".join(labels[-2:]) or given
    own = labels[-suffix.count(".") - 2 :]
    return ".".join(own) if own[0] else name


def _suffix_of(name: str) -> str:
    """Return the public suffix of a name by the rules of the list; "" if none of them applies."""
    rest = name
    while rest:
        parent = rest.partition(".")[2]
        if parent in _WILD:
            return parent if f"!{rest}" in RULES else rest
        if rest in RULES:
            return rest
        rest = parent
    return ""


def _as_listed(label: str) -> str:
    """Return a label as the list spells it: an internationalised one in Unicode."""
    if not label.startswith("xn--"):
        return label
    try:
        return label[4:].encode().decode("punycode") or label
    except UnicodeError:
        return label
