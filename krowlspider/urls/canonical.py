"""The normal form of a URL, its identity, and its host, domain and port.

The normal form of a URL, its identity, and bounds on the length of what is parsed. Every URL is
parsed by ada (WHATWG URL Standard). The normal form is fetched. The identity ignores tracking
parameters, session ids, the order of parameters and the case of escapes. It only decides whether a
URL has been seen: `identity` returns its text, `IdentityHasher` its 8 bytes.

IDNA processing takes time quadratic in the length of a host; the rest of a URL takes linear time.
So references are bounded before they are parsed.

The host, authority, domain and port of a URL. The functions for URLs run for each link, so they
slice the text of a *normalised* URL and parse nothing. data: URLs (RFC 2397) hold their content, so
nothing is fetched for them. The frontier queues by host, so they are queued under http URLs of a
host that cannot exist.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha1
from typing import TYPE_CHECKING
from urllib.parse import unquote

import can_ada
import xxhash
from xxhash import xxh3_64_intdigest

from krowlspider.internals.suffix_list import suffix_list
from krowlspider.urls import gemini

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Characters of a reference without its fragment: eight times URLLENGTH_LIMIT, as parsing removes
# spaces, line ends and dot segments.
REFERENCE_MAX = 16 * 1024
# Characters of a seed, of a URL that another node sends, and of the base of a document: each joined
# reference may be as long as its base. No longer URL is queued by default.
URL_MAX = 2048
# Characters of a non-ASCII authority, percent-decoded: a name has at most 253, and a root dot and a
# port may follow.
AUTHORITY_MAX = 253 + len(".:65535")
# Characters that the wide authorities of a page may have together, 15 for each of 10,000 links. An
# authority is wide if it is non-ASCII, percent-encoded or longer than AUTHORITY_MAX.
WIDE_MAX = 150_000

# The authority of a reference, after a scheme or two slashes; tabs and line ends are ignored. If a
# path follows the scheme instead, its first segment is taken as the authority.
_AUTHORITY = re.compile(
    r"[\0- ]*+(?:[A-Za-z][A-Za-z0-9+.\t\n\r-]*+:[/\\\t\n\r]*+|[/\\][\t\n\r]*+[/\\][/\\\t\n\r]*+)"
    r"([^/\\?#]*+)"
)


def fits(reference: str) -> bool:
    """Return whether a reference, or a URL parsed from one, is short enough to be parsed."""
    short = len(reference) <= AUTHORITY_MAX and reference.isascii()
    return short or _width(reference, WIDE_MAX) is not None


def fitting(references: Iterable[str], oversize: list[str]) -> list[str]:
    """Return the references of a page that may be parsed, and add the others to ``oversize``.

    The references share one room of WIDE_MAX characters for their wide authorities.
    """
    found, room = [], WIDE_MAX
    for reference in references:
        if len(reference) > AUTHORITY_MAX or not reference.isascii():
            width = _width(reference, room)
            if width is None:
                oversize.append(reference)
                continue
            room -= width
        found.append(reference)
    return found


def queued_max(limit: int) -> int:
    """Return the most characters of a URL that is queued. ``limit`` is URLLENGTH_LIMIT.

    0 means no limit, as in Scrapy, but a URL longer than REFERENCE_MAX would not be parsed on a
    retry.
    """
    return min(limit or REFERENCE_MAX, REFERENCE_MAX)


def _width(reference: str, room: int) -> int | None:
    """Return how much of a page's room a reference takes; None if it must not be parsed."""
    if len(reference) > REFERENCE_MAX and "#" not in reference[: REFERENCE_MAX + 1]:
        return None
    found = _AUTHORITY.match(reference, 0, REFERENCE_MAX)
    if found is None:
        return 0
    authority = found[1]
    width = len(authority)
    if "%" in authority or not authority.isascii():
        return width if width <= room and len(unquote(authority)) <= AUTHORITY_MAX else None
    if width <= AUTHORITY_MAX:
        return 0
    # A non-ASCII name can be this long in its ASCII form, and even REFERENCE_MAX characters of
    # ASCII are parsed quickly.
    return width if width <= room else None


# Parameters that track a visitor and never select a page: Google, Meta, Microsoft, HubSpot,
# Mailchimp, Yandex, X, TikTok, LinkedIn, Marketo, Openstat. Not ``ref``, which may select a page.
_TRACKING = (
    *("_ga", "_gl", "dclid", "gbraid", "gclid", "gclsrc", "wbraid"),
    *("fb_action_ids", "fb_action_types", "fb_source", "fbclid", "igshid"),
    *("_hsenc", "_hsmi", "hsa_[^=&]*", "mc_cid", "mc_eid", "mkt_tok", "msclkid", "utm_[^=&]*"),
    *("_openstat", "yclid", "ysclid", "li_fat_id", "ttclid", "twclid"),
)
# Session ids of PHP, Java, ASP, ColdFusion, osCommerce and Zen Cart. Together with _RANDOM, those
# that Heritrix's and the Wayback Machine's canonicalisation remove.
_SESSIONS = (
    *("phpsessid", "jsessionid", "aspsessionid[a-z]*", "cfid", "cftoken", "oscsid", "zenid"),
    # Only a random value. A readable value or a GUID may name a conference session.
    "sess(?:ion)?_?id=(?=[a-z]*[0-9])(?=[0-9]*[a-z])[0-9a-z]{16,}",
)
# "sid" and "s" may also be the number of a story or the hash of a document: only an MD5 counts.
_RANDOM = "s(?:id)?=(?=[a-f]*[0-9])[0-9a-f]{32}"
_TRACKED = re.compile(
    f"&(?:(?:{'|'.join(_TRACKING)}|(?i:{'|'.join(_SESSIONS)}))(?:=[^&]*)?|(?i:{_RANDOM}))(?![^&])"
)
# An escape of RFC 3986, section 2.1, that is not written in upper case, or a "%" of no escape.
_NOT_UPPER = re.compile("%(?![0-9A-F]{2})")
_ESCAPES = re.compile("(?:%[0-9A-Fa-f]{2})+")
_SESSION_IN_PATH = re.compile(r";jsessionid=[^;/]*", re.IGNORECASE)
_SCHEMES = ("https://", "http://")
# References that the parser only appends to the origin, which is cheaper without it: absolute paths
# without dot segments and empty ones, and queries, of characters that are never encoded. Segments
# are not repeated by "++": before Python 3.11.5 a failed repetition is not undone (gh-106052).
_PLAIN = re.compile(
    r"(?:/(?![./])[A-Za-z0-9._~!$&()*+,;=:@-]*+)+(?:\?[A-Za-z0-9._~!$&()*+,;=:@/?-]*+)?+"
)
# The origin of a URL of a scheme that the URL standard does not know.
_NO_ORIGIN = "null"
_LINE_STARTS = ("\nhttps://", "\nhttp://")
# TypeError: the text holds a lone surrogate, so it is not UTF-8.
_UNPARSED = (ValueError, TypeError)


def normalise(url: str, base: str | None = None) -> str | None:
    """Return the absolute http(s) URL, joined to ``base``, WHATWG-normalised, without fragment.

    Return None if the URL does not parse, is too long (see `fits`), has another
    scheme, or contains a user name or password. Where `gemini.accept_gemini` has said so, a gemini
    URL is returned in the form of `gemini.normal_form`.
    """
    if not fits(url):
        return None
    try:
        parsed = can_ada.parse(url) if base is None else can_ada.parse(base) + url
    except _UNPARSED:
        return None
    return _accept(parsed.href)


def normalise_archived(url: str, base: str | None = None) -> str | None:
    """Return as `normalise` does, and of a gemini URL its normal form, whether this process crawls
    such URLs or not: for what reads archives."""
    found = normalise(url, base)
    if found is not None or not fits(url):
        return found
    try:
        parsed = can_ada.parse(url) if base is None else can_ada.parse(base) + url
    except _UNPARSED:
        return None
    return gemini.normal_form(parsed.href)


def normalise_without_user(url: str, base: str) -> str | None:
    """Return as `normalise` does, but leave out a user name and password."""
    if not fits(url):
        return None
    try:
        parsed = can_ada.parse(base) + url
    except _UNPARSED:
        return None
    parsed.username = parsed.password = ""
    return _accept(parsed.href)


def normalise_all(
    hrefs: Iterable[str],
    base: str,
    refused: list[str] | None = None,
    oversize: list[str] | None = None,
) -> list[str]:
    """Return the ``hrefs`` of a page, normalised as by `normalise`, in order and without repeats.

    Those that `normalise` refuses are left out and added to ``refused``, or to ``oversize`` if they
    are too long. ``base`` is an absolute URL without user name.

    :raises ValueError: ``base`` does not parse
    """
    return list(normalise_each(dict.fromkeys(hrefs, ""), base, refused, oversize))


def normalise_each(
    values: Mapping[str, str],
    base: str,
    refused: list[str] | None = None,
    oversize: list[str] | None = None,
) -> dict[str, str]:
    """Return, by normalised URL, the value of its last href in ``values``.

    Otherwise as `normalise_all`.
    """
    left = [] if refused is None else refused
    parsed = can_ada.parse(base)
    if parsed.origin == _NO_ORIGIN:
        return _each_of_gemini(values, base, left, [] if oversize is None else oversize)
    # One check of the joined text is far cheaper than a check of each reference. If it passes, the
    # total length bounds the time to parse them.
    together = "".join(values)
    if len(together) > REFERENCE_MAX or not together.isascii():
        fit = fitting(values, [] if oversize is None else oversize)
        values = {href: values[href] for href in fit}
    origin, plain = parsed.origin, _PLAIN.fullmatch
    try:
        urls = [origin + href if plain(href) else (parsed + href).href for href in values]
    except _UNPARSED:
        urls = [normalise(href, base) or "" for href in values]
    if "#" in together:
        urls = [url[: url.index("#")] if "#" in url else url for url in urls]
    # One check of the joined URLs, too, is cheaper than a call of `_accept` for each.
    lines = "\n".join(["", *urls])
    if "@" not in lines and sum(map(lines.count, _LINE_STARTS)) == len(urls):
        return dict(zip(urls, values.values(), strict=True))
    found: dict[str, str] = {}
    for url, href in zip(urls, values, strict=True):
        if ("@" in url or not url.startswith(_SCHEMES)) and (kept := _accept(url)) != url:
            if kept is not None:
                found[kept] = values[href]
            elif oversize is not None and gemini.accepts_gemini() and gemini.is_too_long(url):
                oversize.append(href)
            else:
                left.append(href)
        else:
            found[url] = values[href]
    return found


def _each_of_gemini(
    values: Mapping[str, str], base: str, refused: list[str], oversize: list[str]
) -> dict[str, str]:
    """Return as `normalise_each` does, for a base that is a gemini URL: ada knows no origin of
    it."""
    found: dict[str, str] = {}
    for href in fitting(values, oversize):
        if (url := normalise(href, base)) is None:
            refused.append(href)
        else:
            found[url] = values[href]
    return found


def _accept(href: str) -> str | None:
    """Return ``href`` without fragment, or None if it is not http(s) or contains a user name. A
    gemini URL is accepted where that is switched on.

    ``href`` is serialised by ada, so a '#' starts the fragment and a '/' ends the authority.
    """
    if not href.startswith(_SCHEMES):
        return gemini.normal_form(href) if gemini.accepts_gemini() else None
    if "#" in href:
        href = href[: href.index("#")]
    if "@" in href and "@" in href[: href.index("/", 8)]:
        return None
    return href


def identity(url: str) -> str:
    """Return the identity of a normalised URL: the text by which a URL counts as seen.

    Tracking parameters and session ids are removed, and parameters are sorted by name. Parameters
    of the same name keep their order. The hexadecimal digits of escapes are upper-case (RFC 3986,
    section 6.2.2.1). Which characters are escaped stays as it is. So two URLs that a server can
    distinguish in any other way never share an identity.
    """
    return _significant(with_upper_escapes(url) if "%" in url else url)


def with_upper_escapes(text: str) -> str:
    """Return a text with the hexadecimal digits of its escapes in upper case."""
    return _ESCAPES.sub(_upper, text) if _NOT_UPPER.search(text) else text


def _upper(escapes: re.Match[str]) -> str:
    return escapes[0].upper()


def _significant(url: str) -> str:
    """Return a URL without tracking parameters and session ids, its parameters sorted by name."""
    path, mark, query = url.partition("?")
    if ";" in path:
        path = _SESSION_IN_PATH.sub("", path)
    if not mark:
        return path
    kept = "&" + query
    # A search that finds nothing takes half the time of a substitution.
    if _TRACKED.search(kept) and not gemini.is_gemini(path):
        kept = _TRACKED.sub("", kept)
        if not kept:
            return path
    if "&" not in kept[1:]:
        return path + "?" + kept[1:]
    if gemini.is_gemini(path):
        # Its query is one text, as a person has typed it.
        return path + "?" + kept[1:]
    return path + "?" + "&".join(sorted(kept[1:].split("&"), key=_name))


def requisite_identity(url: str) -> str:
    """Return the text by which a normalised URL counts as seen as a requisite.

    It differs from that of the page: a page that another one embeds is still fetched as a page, and
    its links are followed.
    """
    return f"requisite {url}"


def _name(parameter: str) -> str:
    return parameter.partition("=")[0]


class IdentityHasher:
    """Hashes identities to the keys of the seen set; ``seed`` (64 bits) belongs to the job.

    The seed prevents a site from crafting URLs that collide with other URLs in every crawl.

    :raises ValueError: ``seed`` is not a 64-bit number
    """

    def __init__(self, seed: int):
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"the seed must be of 64 bits, not {seed}")
        self._seed = seed

    def key(self, url: str) -> bytes:
        """Return the 8-byte key (xxh3-64, big endian) of a normalised URL."""
        return xxhash.xxh3_64_digest(identity(url).encode(), self._seed)

    def keys(self, urls: Iterable[str]) -> list[bytes]:
        digest, seed = xxhash.xxh3_64_digest, self._seed
        urls = list(urls)
        # One check of the joined URLs is cheaper than one of each; normalised ones have no "\n".
        lines = "\n".join(urls)
        if "%" in lines:
            urls = with_upper_escapes(lines).split("\n")
        # Most URLs are their own identity, and a call costs as much as the hash.
        return [
            digest((_significant(url) if "?" in url or ";" in url else url).encode(), seed)
            for url in urls
        ]


# Domains kept in memory, about 250 bytes each: most links lead to hosts that were met lately.
DOMAIN_CACHE = 65_536

_HOST_SCHEMES = ("https:", "http:")
# Reading the list is slow, so the list is read at import and not on the event loop.
RULES = frozenset(re.findall(r"^[^/\s]\S*", suffix_list(), re.MULTILINE))
# "kobe.jp" of the rule "*.kobe.jp".
_WILD = frozenset(rule[2:] for rule in RULES if rule[0] == "*")


def host_of(url: str) -> str:
    """Return the lower-case host of a normalised URL: its hostname, with ``:port`` if it has one.

    The default port of the scheme is left out, and IPv6 is in brackets. The http and the https site
    of a name are one host. The host of a gemini URL always has its port: see `gemini.host_in`.

    :raises ValueError: ``url`` is not an absolute http(s) or gemini URL with a path
    """
    parts = url.split("/", 3)
    if len(parts) != 4 or parts[0] not in _HOST_SCHEMES or parts[1] or not parts[2]:
        if parts[0] == "gemini:" and len(parts) == 4 and not parts[1] and parts[2]:
            return gemini.host_in(parts[2])
        raise ValueError(f"not a normalised http(s) URL: {url[:200]!r}")
    host = parts[2]
    # A name with its root dot and the same name without it are one host.
    if host[-1] == ".":
        return host[:-1] or host
    return host.replace(".:", ":") if ".:" in host and host[:2] != ".:" else host


def authority_of(url: str) -> str:
    """Return ``scheme://host[:port]`` of a normalised URL, to which one robots.txt applies.

    Host and errors are those of `host_of`. The default port of a gemini URL is left out.
    """
    if url[:1] == "g":
        return gemini.authority_at(host_of(url))
    return f"{url.partition(':')[0]}://{host_of(url)}"


def path_start(url: str) -> int:
    """Return where the path of a normalised URL begins."""
    # The authority of an http or https URL begins at index 8 or before it.
    return url.index("/", len(gemini.SCHEME) if gemini.is_gemini(url) else 8)


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


def labels_above_suffix(name: str) -> int:
    """Return how many labels a name without ``xn--`` has above its public suffix: one for a
    registrable domain; none for what others register names below, an IP address and a single
    label."""
    if name in _WILD:
        return 0
    suffix = _suffix_of(name)
    if suffix:
        return name.count(".") - suffix.count(".")
    return 0 if name.rpartition(".")[2].isdigit() else name.count(".")


def is_public_suffix(name: str) -> bool:
    """Return whether a name is in the Public Suffix List: others register names below it."""
    return name != "" and _suffix_of(name) == name


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


# RFC 6761, section 6.4: no name in this domain resolves.
DATA_HOST = "data.invalid"


def is_data(url: str) -> bool:
    """Return whether a URL is a data: URL."""
    return url.startswith("data:")


def queued_as(url: str) -> str:
    """Return the normalised http URL under which a data: URL is queued."""
    digest = sha1(url.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    return f"http://{DATA_HOST}/{digest.hexdigest()}"


# Ports of other protocols, whose servers must receive no HTTP request: Fetch standard, section 2.9,
# "bad ports".
BAD_PORTS = frozenset(
    {
        *(0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95),
        *(101, 102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179),
        *(389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587),
        *(601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061),
        *(6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080),
    }
)
_PORT_MAX = 65_535
# Hosts with a port for which the result is cached, about 150 bytes each.
_REMEMBERED = 16_384


def port_of(host: str) -> int | None:
    """Return the port of a host from `host_of`; None for the default of its scheme."""
    _, colon, port = host.rpartition(":")
    # The last colon of "[::1]" does not precede a port.
    return int(port) if colon and port.isdigit() else None


def name_of(host: str) -> str:
    return host if port_of(host) is None else host.rpartition(":")[0]


def orders_for(host: str) -> tuple[str, ...]:
    """Return the texts by which people name a host from `host_of` in orders, the narrowest first:
    with its port, then the name, which stands for all ports.

    A host without a port is that of both default ports.
    """
    name = name_of(host)
    return (host, name) if name != host else (f"{host}:80", f"{host}:443", host)


@lru_cache(maxsize=_REMEMBERED)
def has_bad_port(host: str) -> bool:
    return port_of(host) in BAD_PORTS


class Ports:
    """The ports that links may lead to, given as ``8080`` or ``1024-65535``.

    A single port is allowed on every host name. Of the ports in ranges, each host name may use one.

    :raises ValueError: a text is neither a port nor a range, or a single port is bad
    """

    def __init__(self, given: Iterable[str]):
        self._listed: set[int] = set()
        self._ranges: list[range] = []
        for text in given:
            first, dash, last = text.strip().partition("-")
            found = range(_number(first, text), _number(last if dash else first, text) + 1)
            if not found:
                raise ValueError(f"{text!r} is no range of ports: its first is above its last")
            if dash:
                self._ranges.append(found)
            elif found.start in BAD_PORTS:
                raise ValueError(f"{text!r} is a port of another protocol, which is never asked")
            else:
                self._listed.add(found.start)

    def lists(self, port: int) -> bool:
        """Return whether a port is given as a single port."""
        return port in self._listed

    def spans(self, port: int) -> bool:
        """Return whether a port is in one of the ranges."""
        return any(port in ports for ports in self._ranges)


def _number(digits: str, text: str) -> int:
    if digits.isascii() and digits.isdigit() and len(digits) <= 5 and int(digits) <= _PORT_MAX:
        return int(digits)
    raise ValueError(f"{text!r} is neither a port nor a range such as 1024-65535")
