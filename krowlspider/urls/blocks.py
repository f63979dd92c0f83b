"""Rules that hold hosts back or exclude URLs, as people give them.

A rule names one host, a domain, or all names under a SURT prefix. An exclusion is an expression or
the name of a host, in a file that may change at any time.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import TYPE_CHECKING

from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import domain_of, host_of, name_of, orders_for, port_of

if TYPE_CHECKING:
    from collections.abc import Iterable

# A name of 253 characters (RFC 1035 section 2.3.4), with scheme and port.
_LONGEST = 300
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


def ordered_host(text: str) -> str:
    """Return what a person names in an order: ``name``, which is all ports and both schemes, or
    ``name:port``. A path, query or fragment is left out.

    :raises ValueError: the text is no name or address of a host, and no URL of one
    """
    given = text.strip()
    found = _SCHEME.match(given)
    rest = given[found.end() :] if found else given
    with suppress(ValueError):
        rest = f"[{IPv6Address(rest)}]"
    schemes = ("http", "https")
    hosts = [host_of(url) for each in schemes if (url := normalise(f"{each}://{rest}"))]
    is_other = found is not None and found[1].lower() not in schemes
    if len(hosts) < 2 or is_other or rest[:1] in {"/", "\\"}:
        raise ValueError(f"{given[:80]!r} is not the name of a host, nor a URL with http or https")
    name = name_of(hosts[0])
    if "*" in name or "" in name.split("."):
        raise ValueError(
            f"{given[:80]!r} is not the name of one host: block takes a domain, and 'org,example,'"
            " for all names below example.org"
        )
    # Each scheme hides its own default port.
    port = next((port for host in hosts if (port := port_of(host)) is not None), None)
    return name if port is None else f"{name}:{port}"


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
    # A public suffix is no domain: it has many.
    is_domain = domain_of(f"www.{host}") == host
    is_name = port_of(host) is None and host[:1] != "[" and not host[-1].isdigit()
    if is_name and (below or (is_domain and "://" not in given)):
        return _surt(host) + ","
    return _surt(host) + ")" if is_name and is_domain else host


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
