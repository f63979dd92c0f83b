"""The host, authority and domain of a URL.

These functions run for each link, so they slice the text of a *normalised* URL and parse nothing.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import SplitResult

from tldextract import TLDExtract
from xxhash import xxh3_64_intdigest

# Domains kept in memory, about 250 bytes each: most links lead to hosts that were met lately.
DOMAIN_CACHE = 65_536

_SCHEMES = ("https:", "http:")
# The list bundled with tldextract, private section included. Neither the network nor a cache folder
# is used.
SUFFIXES = TLDExtract(cache_dir=None, suffix_list_urls=(), include_psl_private_domains=True)
# Reading the list is slow, so the list is read at import and not on the event loop.
_RULES = SUFFIXES.tlds
# The last two labels of each rule with several: "co.uk", "kobe.jp" from "*.kobe.jp", "*.ck". Any
# other name has only its last label as suffix, if this label is a rule.
_LONGER = {".".join(rule.split(".")[-2:]) for rule in _RULES if "." in rule}
_SHORT = {rule for rule in _RULES if "." not in rule and f"*.{rule}" not in _LONGER}


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
    name = host.partition(":")[0]
    rest, _, last = name.rpartition(".")
    if last in _SHORT:
        # A fast path for most names. The list spells internationalised names in Unicode, so "xn--"
        # names go to the list itself.
        label = rest.rpartition(".")[2]
        domain = f"{label}.{last}"
        if label and domain not in _LONGER and not label.startswith("xn--"):
            return domain
    found = SUFFIXES.extract_urllib(SplitResult("", name, "", "", ""))
    if found.suffix:
        return found.top_domain_under_public_suffix or name.rstrip(".")
    labels = name.rstrip(".").split(".")
    return name if labels[-1].isdigit() else ".".join(labels[-2:]) or name
