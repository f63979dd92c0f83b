"""Lines that people give: seeds, lists of domains, and rules that hold back hosts or URLs.

Parse the lines of seed files, and of lists of domains that others publish. Lists are those of
Tranco and Majestic Million, zone files, and plain ones.

Rules that hold hosts back or exclude URLs, as people give them. A rule names one host, a domain, or
all names under a SURT prefix. An exclusion is an expression or the name of a host, in a file that
may change at any time.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from krowlspider.urls import gemini
from krowlspider.urls.canonical import (
    URL_MAX,
    domain_of,
    fits,
    has_bad_port,
    host_of,
    name_of,
    normalise,
    orders_for,
    port_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

if TYPE_CHECKING:
    ReadLine = Callable[[bytes], "Seed | None"]

# Bytes of a line that are read; the rest of the line is skipped.
_LINE_MAX = 65536
_BOM = b"\xef\xbb\xbf"
_COMMENT = re.compile(r"(?:^|\s)#.*", re.DOTALL)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
# "1,google.com", as in lists of the top million sites.
_RANKED = re.compile(r"^\d+,(?=\S)")
# The characters of a host. The URL parser also accepts commas and quotes, but no name server does.
_HOST = re.compile(r"(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}\.?(?::\d+)?|\[.*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_WHITESPACE = " \t\r\n"
# User name and password, where a URL or a line without a scheme has them.
_CREDENTIALS = re.compile(r"(^[ \t]*|//)[^/?#\s]*@", re.MULTILINE)
# Characters of a tag.
TAG_MAX = 100
# Whole numbers that a seed may say, each with its least and its greatest value.
_NUMBERS = {"depth": (0, 32_767), "max_pages": (1, 10**12), "priority": (-100, 100)}
_WORDS = ("tag", *_NUMBERS)


class BadSeed(ValueError):
    """A line is no seed; the message is the reason."""


class ListLine(BadSeed):
    """A line is no seed, but looks as one of a list that ``scrapy seeds`` converts."""


class _Readable(Protocol):
    def readline(self, size: int = -1, /) -> bytes: ...


class SeedWords(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a seed says of itself, and of all that is found from it.

    - ``tag``: its name in reports; "" without one.
    - ``depth``: hops from it that are followed. ``max_pages``: pages fetched from it, itself
      included. None is no limit.
    - ``priority``: of what is found from it, within a host; greater ones first.
    """

    tag: str = ""
    depth: int | None = None
    max_pages: int | None = None
    priority: int = 0

    def text(self) -> str:
        """Return the JSON that `parse_words` reads."""
        return msgspec.json.encode(self).decode()


def words_of(found: object) -> SeedWords:
    """Return the words in the value of a JSON text.

    :raises BadSeed: it is no object, has an unknown key, or a value that is none of its key
    """
    if not isinstance(found, dict):
        raise BadSeed('the words behind the tab are no JSON object, such as {"tag": "news"}')
    for name, value in found.items():
        if name not in _WORDS:
            raise BadSeed(_unknown_word(name))
        if name == "tag":
            if not isinstance(value, str) or not _is_tag(value):
                raise BadSeed(
                    f"tag is {_value(value)}: give a text of 1 to {TAG_MAX} printable characters"
                )
            continue
        least, most = _NUMBERS[name]
        # True is an int.
        if type(value) is not int or not least <= value <= most:
            raise BadSeed(
                f"{name} is {_value(value)}: give a whole number from {least:,} to {most:,}"
            )
    return SeedWords(**found)


def parse_words(text: str) -> SeedWords:
    """Return the words in a JSON text; behind it nothing but a comment may stand.

    :raises BadSeed: it is no JSON, a key stands twice, or as of `words_of`
    """
    try:
        found, end = _read_words(text)
    except BadSeed:
        raise
    except (ValueError, RecursionError) as error:
        why = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise BadSeed(f"the words behind the tab are no JSON: {why[:80]}") from error
    if _COMMENT.sub("", text[end:]).strip(_WHITESPACE):
        raise BadSeed(f"{_shown(text[end:].strip())} behind the words")
    return words_of(found)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise BadSeed(f"{name[:40]!r} stands twice in the words")
        found[name] = value
    return found


_read_words = json.JSONDecoder(object_pairs_hook=_once).raw_decode


def _is_tag(value: str) -> bool:
    return 0 < len(value) <= TAG_MAX and value.isprintable() and value == value.strip()


def _value(value: object) -> str:
    """Return a value as JSON, shortened. What is not printable stays escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return (text if text.isprintable() else json.dumps(value))[:60]


def _unknown_word(name: str) -> str:
    # A bad line is rare: most starts do not load it.
    from difflib import get_close_matches  # noqa: PLC0415

    near = get_close_matches(name[:40], _WORDS, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown word {name[:40]!r}: {hint}known are {', '.join(_WORDS)}"


@dataclass(slots=True)
class Seed:
    """A normalised URL to start from; ``bare`` if given without a scheme, so https is a guess.

    ``words`` are its own; None without any.
    """

    url: str
    bare: bool
    words: SeedWords | None = None


def parse_seed(line: bytes) -> Seed | None:
    """Return the seed in a line: a URL, a bare domain (with port or path), or ``rank,domain``.
    Behind a tab, its words may stand as a JSON object.

    None for a blank line, or a comment: "#" at the start of the line or after whitespace.

    :raises BadSeed: the line is anything else
    """
    try:
        text = line.removeprefix(_BOM).decode()
    except UnicodeDecodeError as e:
        raise BadSeed("not UTF-8") from e
    text, said = split_words(text)
    text = _COMMENT.sub("", text.strip(_WHITESPACE)).strip(_WHITESPACE)
    if not text:
        return None
    text = _RANKED.sub("", text)
    _check(text)
    words = parse_words(said) if said else None
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Seed(_bare_url(text), bare=True, words=words)
    if scheme[1].lower() == "gemini" and not gemini.accepts_gemini():
        raise BadSeed("scheme gemini: set KROWL_GEMINI=True to crawl it")
    if scheme[1].lower() not in ("http", "https", "gemini"):
        raise BadSeed(f"scheme {scheme[1]}, neither http nor https")
    return Seed(_url(text, text), bare=False, words=words)


def split_words(text: str) -> tuple[str, str]:
    """Return what stands before the words in a line, and the words; "" without any.

    Words begin with a brace behind the first tab; only tabs and spaces may stand between. A line
    with a comment before the tab has none.
    """
    head, tab, rest = text.partition("\t")
    said = rest.lstrip(" \t")
    if not tab or not said.startswith("{") or _COMMENT.search(head):
        return text, ""
    return head, said


def seed_lines(file: _Readable) -> Iterator[bytes]:
    """Yield the lines of a file; of a line that is too long to be a seed, only the beginning."""
    while line := file.readline(_LINE_MAX):
        yield line
        while not line.endswith(b"\n") and (line := file.readline(_LINE_MAX)):
            pass


def without_credentials(text: str) -> str:
    """Return lines of seeds without user names and passwords, for logs and archives."""
    return _CREDENTIALS.sub(r"\1...@", text)


def _shown(text: str) -> str:
    return repr(without_credentials(text)[:80])


def _check(text: str) -> None:
    if len(text) > URL_MAX:
        raise BadSeed(f"longer than {URL_MAX} characters")
    if _CONTROL.search(text):
        raise BadSeed("a control character inside")
    fields = text.split()
    if len(fields) > 3 and fields[1].isdigit() and fields[2].upper() == "IN":
        raise ListLine(f"a record of a zone file: {_shown(text)}")
    if len(fields) > 1:
        is_worded = fields[1].startswith("{")
        raise BadSeed("no tab before the words" if is_worded else "whitespace inside")


def _bare_url(text: str) -> str:
    name = re.split(r"[/?#:]", text, maxsplit=1)[0]
    if "," in name:
        raise ListLine(f"several fields: {_shown(text)}")
    if "." not in name.strip(".") and name != "localhost" and not name.startswith("["):
        raise BadSeed(f"neither a URL nor a domain: {_shown(text)}")
    return _url(f"https://{text}", text)


def _is_gemini(url: str) -> bool:
    return url[: len(gemini.SCHEME)].lower() == gemini.SCHEME


def _url(url: str, text: str) -> str:
    normal = normalise(url)
    if normal is None:
        more = f", or of more than {gemini.URL_MAX:,} bytes" if _is_gemini(url) else ""
        raise BadSeed(f"not a URL, or one with a user name{more}: {_shown(text)}")
    host = host_of(normal)
    if not _HOST.fullmatch(host):
        raise BadSeed(f"not a host name: {host[:80]!r}")
    if ":" in host and has_bad_port(host):
        raise BadSeed(f"port {port_of(host)} is of another protocol, and never asked")
    return normal


# Lines by which a format is recognised, blank lines and comments not counted.
_LOOK = 10


def ranked(line: bytes) -> Seed | None:
    """Return the seed of a line ``rank,domain``. Cisco Umbrella's list has this format too."""
    rank, _, domain = line.partition(b",")
    if not rank.isdigit() or b"," in domain:
        raise BadSeed("not of the form rank,domain")
    return _named(domain)


class Majestic:
    """Comma-separated fields, below a header that names one of them Domain."""

    def __init__(self) -> None:
        self._column: int | None = None

    def seed(self, line: bytes) -> Seed | None:
        if self._column is None:
            names = [_unquoted(each).lower() for each in line.split(b",")]
            if not {b"globalrank", b"domain"} <= set(names):
                raise BadSeed("there is no header line with GlobalRank and Domain before it")
            self._column = names.index(b"domain")
            return None
        fields = line.split(b",", self._column + 1)
        if len(fields) <= self._column:
            raise BadSeed(f"fewer than {self._column + 1} fields")
        return _named(fields[self._column])


class Zone:
    """Records ``name TTL IN type data`` of a zone, as the CZDS publishes them.

    The seeds are the delegated names directly below the apex. The NS records of a name follow each
    other. The apex is the owner of the SOA record, or the last label of the first delegated name.
    """

    def __init__(self) -> None:
        self._apex = b""
        self._last = b""

    def seed(self, line: bytes) -> Seed | None:
        if line.startswith((b";", b"$")):
            return None
        fields = line.split(None, 4)
        if len(fields) < 5 or fields[2].upper() != b"IN" or not fields[1].isdigit():
            raise BadSeed("not of the form name TTL IN type data")
        kind = fields[3].upper()
        if kind not in (b"NS", b"SOA"):
            return None
        name = fields[0].lower().rstrip(b".")
        if kind == b"SOA":
            self._apex = name
            return None
        self._apex = self._apex or name.rpartition(b".")[2]
        if name == self._last or name.partition(b".")[2] != self._apex:
            return None
        self._last = name
        return _named(name)


# What reads a file, by the names of --format. The order is that of recognition: `parse_seed` takes
# lines of Tranco's too.
FORMATS: dict[str, Callable[[], ReadLine]] = {
    "tranco": lambda: ranked,
    "majestic": lambda: Majestic().seed,
    "czds": lambda: Zone().seed,
    "plain": lambda: parse_seed,
}


def content(line: bytes) -> bytes:
    """Return a line without what surrounds its text; empty for a blank line or a comment."""
    text = line.removeprefix(_BOM).strip()
    return b"" if text.startswith(b"#") else text


def recognise(lines: Iterable[bytes]) -> str | None:
    """Return the name of the format of the first line that has one, or None."""
    for line in islice(filter(None, map(content, lines)), _LOOK):
        for name, begin in FORMATS.items():
            with suppress(BadSeed):
                begin()(line)
                return name
    return None


def seed_text(seed: Seed) -> str:
    """Return a seed as a line of a file of seeds, which is read as the same seed."""
    url = seed.url
    if seed.bare:
        host, _, path = url.removeprefix("https://").partition("/")
        url = f"{host}/{path}" if path else host
    return url if seed.words is None else f"{url}\t{seed.words.text()}"


def _named(field: bytes) -> Seed:
    seed = parse_seed(_unquoted(field))
    if seed is None:
        raise BadSeed("no domain")
    return seed


def _unquoted(field: bytes) -> bytes:
    return field.strip().strip(b'"')


# Characters of a name (RFC 1035 section 2.3.4), and of one with scheme and port.
_LONGEST_NAME = 253
_LONGEST = 300
# A name that the URL parser leaves as it is: no IDNA, no address, and at most 253 characters.
_PLAIN_NAME = re.compile(r"(?:[a-z0-9_-]{1,63}+\.){1,99}+[a-z][a-z-]{0,62}+")
_RULE_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


def ordered_host(text: str) -> str:
    """Return what a person names in an order: ``name``, which is all ports and both schemes, or
    ``name:port``. A path, query or fragment is left out.

    :raises ValueError: the text is no name or address of a host, and no URL of one
    """
    given = text.strip()
    if (at := gemini.normal_form(_as_gemini(given))) is not None:
        return host_of(at)
    found = _RULE_SCHEME.match(given)
    rest = given[found.end() :] if found else given
    with suppress(ValueError):
        rest = f"[{IPv6Address(rest)}]"
    schemes = ("http", "https")
    hosts = [host_of(url) for each in schemes if (url := normalise(f"{each}://{rest}"))]
    is_other = found is not None and found[1].lower() not in schemes
    if len(hosts) < 2 or is_other or rest[:1] in {"/", "\\"}:
        raise ValueError(f"{given[:80]!r} is not the name of a host, nor a URL with http or https")
    name = name_of(hosts[0])
    if len(name) > _LONGEST_NAME:
        raise ValueError(f"{given[:40]!r}... is longer than any name of a host")
    if "*" in name or "" in name.split("."):
        raise ValueError(
            f"{given[:80]!r} is not the name of one host: block takes a domain, and 'org,example,'"
            " for all names below example.org"
        )
    # Each scheme hides its own default port.
    port = next((port for host in hosts if (port := port_of(host)) is not None), None)
    return name if port is None else f"{name}:{port}"


def _as_gemini(text: str) -> str:
    """Return the root URL of a gemini URL; any other text as it is."""
    scheme, separator, rest = text[: URL_MAX + 1].partition("://")
    if scheme.lower() != "gemini" or not separator or not fits(text):
        return text[:1]
    return f"{gemini.SCHEME}{re.split('[/?#]', rest, maxsplit=1)[0]}/"


def is_plain_name(text: str) -> bool:
    """Return whether a text is the name of a host as the URL parser writes it, without a port."""
    return len(text) < 254 and "xn--" not in text and _PLAIN_NAME.fullmatch(text) is not None


def is_domain(name: str) -> bool:
    """Return whether a name is a registrable domain. A public suffix is none: it has many."""
    return domain_of(f"www.{name}") == name


def block_rule(text: str) -> str:
    """Return the rule that a person gives, in one of three forms:

    - ``www.example.org``, or ``org,example)`` where the name is a registrable domain: this name at
      every port. A URL becomes this one.
    - ``www.example.org:8080``: this name at one port.
    - ``org,example,``: this name and all names below it, at every port. A registrable domain given
      by its name becomes this one, and so does ``*.example.org``.

    :raises ValueError: the text is none of these
    """
    given = text.strip().lower()
    if is_plain_name(given):
        return _surt(given) + "," if is_domain(given) else given
    if len(given) > _LONGEST and "://" not in given:
        raise ValueError(f"{given[:40]!r}... is longer than any name of a host")
    if not set(re.split("[/?#]", given.split("://")[-1])[0]).isdisjoint(",()"):
        return _surt_rule(given)
    below = given.startswith(("*.", "."))
    try:
        host = ordered_host(given.removeprefix("*").removeprefix(".") if below else given)
    except ValueError:
        raise ValueError(
            f"{text[:80]!r} is no host, domain or SURT prefix such as org,example,"
        ) from None
    is_site = is_domain(host)
    is_name = port_of(host) is None and host[:1] != "[" and not host[-1].isdigit()
    if is_name and (below or (is_site and "://" not in given)):
        return _surt(host) + ","
    return _surt(host) + ")" if is_name and is_site else host


def _surt_rule(given: str) -> str:
    rule = given.rpartition("(")[2]
    end = rule[-1:]
    if end not in {",", ")"}:
        raise ValueError(
            f"{given!r} is no SURT prefix of hosts: it ends with ',' (a name and all below it) or"
            " ')' (one name)"
        )
    labels = rule[:-1].removesuffix(",").split(",")
    name = ".".join(reversed(labels))
    url = normalise(f"http://{name}")
    if url is None or not set(name).isdisjoint("/:*"):
        raise ValueError(f"{given!r} is no SURT prefix of hosts, such as org,example,")
    return _surt(host_of(url)) + end


def _surt(name: str) -> str:
    return ",".join(reversed(name.split(".")))


def rule_name(rule: str) -> str:
    """Return the host, or the name, that a rule of `block_rule` is made of."""
    return ".".join(reversed(rule[:-1].split(","))) if rule[-1] in ",)" else rule


class Blocks:
    """The rules in effect, each with a note for people. A look-up does not depend on their
    number."""

    def __init__(self, rules: Iterable[tuple[str, str]] = ()):
        self.rules = dict(rules)

    def rule_of(self, host: str) -> str | None:
        """Return the rule that covers a host; None if no rule does."""
        rules = self.rules
        for text in orders_for(host):
            if text in rules:
                return text
        name = _surt(name_of(host))
        if name + ")" in rules:
            return name + ")"
        end = len(name)
        while end > 0:
            if (rule := name[:end] + ",") in rules:
                return rule
            end = name.rfind(",", 0, end)
        return None


# A line that may be a name, an address or the root URL of a host. Of an IPv6 address in brackets,
# an expression would make a set of characters that is in nearly every URL.
_NAME = re.compile(r"(?:https?://)?(?:\[[0-9a-f:.]+\]|[\w.:-]+)(?::[0-9]*)?/?", re.IGNORECASE)
_IN_BRACKETS = re.compile(r"(?:https?://)?\[[0-9a-f:.]+\](?::[0-9]*)?/?", re.IGNORECASE)


@dataclass(slots=True, eq=False)
class PatternList:
    """The expressions in effect. Each is searched in the normalised URL, so each costs time.

    ``names`` has the lines that name hosts, as rules of `block_rule`: they exclude all URLs of
    these. ``bad`` has (line number, reason) for each bad line of their file.
    """

    patterns: tuple[re.Pattern[str], ...] = ()
    bad: tuple[tuple[int, str], ...] = ()
    names: Blocks = field(default_factory=Blocks)

    def match(self, url: str) -> bool:
        """Return whether a normalised URL is excluded."""
        if any(pattern.search(url) for pattern in self.patterns):
            return True
        return bool(self.names.rules) and self.names.rule_of(host_of(url)) is not None


def parse_patterns(data: bytes) -> PatternList:
    """Return the regular expressions of a file, one per line, and its bad lines.

    A line that names a host is both: an expression, and a name at all its ports and both schemes,
    unless it has a port. Blank lines and lines that begin with "#" are skipped. Lines are numbered
    from 1.
    """
    patterns, bad, names = [], [], {}
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        expression = line.strip()
        if not expression or expression.startswith(b"#"):
            continue
        try:
            text = expression.decode()
            with suppress(ValueError):
                if _NAME.fullmatch(text):
                    names[block_rule(text)] = ""
            if names and _IN_BRACKETS.fullmatch(text):
                continue
            patterns.append(re.compile(text))
        except UnicodeDecodeError:
            bad.append((number, "not UTF-8"))
        except (re.error, RecursionError, OverflowError) as error:
            bad.append((number, f"not a regular expression: {error}"))
    return PatternList(tuple(patterns), tuple(bad), Blocks(names.items()))
