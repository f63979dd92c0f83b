"""Rules that block hosts: of one host, of a domain, or of all names under a SURT prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import domain_of, host_of
from krowlspider.urls.ports import name_of

if TYPE_CHECKING:
    from collections.abc import Iterable

# A name of 253 characters (RFC 1035 section 2.3.4), with scheme and port.
_LONGEST = 300


def block_rule(text: str) -> str:
    """Return the rule that a person gives, in one of three forms:

    - ``www.example.org:8080``: this host.
    - ``org,example)``: this name at every port.
    - ``org,example,``: this name and all names below it, at every port. A registrable domain given
      by its name becomes this one.

    :raises ValueError: the text is none of these
    """
    given = text.strip().lower()
    if len(given) > _LONGEST:
        raise ValueError(f"{given[:40]!r}... is longer than any name of a host")
    if "," in given or given.endswith(")"):
        return _surt_rule(given)
    url = normalise(given if "://" in given else f"http://{given}")
    if url is None:
        raise ValueError(f"{text!r} is no host, domain or SURT prefix such as org,example,")
    if url.split("/", 3)[3]:
        raise ValueError(
            f"{text!r} has a path, and a block is of whole hosts: exclude it by KROWL_EXCLUDE"
        )
    host = host_of(url)
    is_name = not (":" in host or host[-1].isdigit())
    if "://" in given or not (is_name and domain_of(host) == host):
        return host
    return _surt(host) + ","


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
    if url is None or "/" in name or ":" in name:
        raise ValueError(f"{given!r} is no SURT prefix of hosts, such as org,example,")
    return _surt(host_of(url)) + end


def _surt(name: str) -> str:
    return ",".join(reversed(name.split(".")))


class Blocks:
    """The rules in effect, each with a note for people. A look-up does not depend on their
    number."""

    def __init__(self, rules: Iterable[tuple[str, str]] = ()):
        self.rules = dict(rules)

    def rule_of(self, host: str) -> str | None:
        """Return the rule that blocks a host; None if no rule does."""
        rules = self.rules
        if host in rules:
            return host
        name = _surt(name_of(host))
        if name + ")" in rules:
            return name + ")"
        end = len(name)
        while end > 0:
            if (rule := name[:end] + ",") in rules:
                return rule
            end = name.rfind(",", 0, end)
        return None
