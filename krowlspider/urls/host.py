"""The host, authority and domain of a URL.

These run for each link, so they slice the text of a *normalised* URL and parse nothing.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import SplitResult

from tldextract import TLDExtract

# Domains kept in memory, about 250 bytes each: a page's links mostly lead to hosts met shortly
# before, and a miss costs 1 to 5 µs.
DOMAIN_CACHE = 65_536

_SCHEMES = ("https:", "http:")
# The list bundled with tldextract, private section included. Neither the network nor a cache folder
# is used.
_SUFFIXES = TLDExtract(cache_dir=None, suffix_list_urls=(), include_psl_private_domains=True)
# The list is read at the first use, which takes 75 ms: at import, not on the event loop.
_RULES = _SUFFIXES.tlds
# What longer rules end in, with two labels: "co.uk", "kobe.jp" of "*.kobe.jp", and "*.ck". No other name has more than the
# last label for its suffix, when that is a rule.
_LONGER = {".".join(rule.split(".")[-2:]) for rule in _RULES if "." in rule}
_SHORT = {rule for rule in _RULES if "." not in rule and f"*.{rule}" not in _LONGER}


def host_of(url: str) -> str:
    """The lower-case hostname, with ``:port`` unless it is the scheme's default; IPv6 in brackets.

    The http and the https site of a name are one host. ``url`` is normalised; ValueError when it is
    no absolute http(s) URL with a path.
    """
    host = _split(url)[2]
    # A name with and without its root dot is one host.
    if host[-1] == ".":
        return host[:-1] or host
    return host.replace(".:", ":") if ".:" in host and host[:2] != ".:" else host


def authority_of(url: str) -> str:
    """``scheme://host[:port]`` of a normalised URL: what one robots.txt speaks for. Without a root dot, as `host_of`.

    ValueError as `host_of`.
    """
    host = host_of(url)
    return f"{url[: url.index(':')]}://{host}"


def _split(url: str) -> list[str]:
    parts = url.split("/", 3)
    if len(parts) != 4 or parts[0] not in _SCHEMES or parts[1] or not parts[2]:
        raise ValueError(f"not a normalised http(s) URL: {url[:200]!r}")
    return parts


@lru_cache(maxsize=DOMAIN_CACHE)
def domain_of(host: str) -> str:
    """The registrable domain of a host, without port, by the whole Public Suffix List.

    A name under an unknown suffix is taken by its last two labels, the list's default rule. An IP
    address, a public suffix and a single label are their own domain.
    """
    if host.startswith("["):
        return host[: host.index("]") + 1]
    name = host.partition(":")[0]
    rest, _, last = name.rpartition(".")
    if last in _SHORT:
        # Most names: 1 µs where the list takes 5. Those of other alphabets stand in it as they are spelt.
        label = rest.rpartition(".")[2]
        domain = f"{label}.{last}"
        if label and domain not in _LONGER and not label.startswith("xn--"):
            return domain
    found = _SUFFIXES.extract_urllib(SplitResult("", name, "", "", ""))
    if found.suffix:
        return found.top_domain_under_public_suffix or name.rstrip(".")
    labels = name.rstrip(".").split(".")
    return name if labels[-1].isdigit() else ".".join(labels[-2:]) or name
