"""Resolve names that need no DNS: addresses, localhost, overrides, /etc/hosts."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# Names remembered that are addresses, or end like one; about 200 bytes each.
_PARSED = 65_536
# Characters of the longest text that is parsed: a zone may follow an IPv6 address.
_LONGEST = 128


def parse_hosts(text: str) -> dict[str, list[str]]:
    """Return the addresses of each name (lower case) in a hosts(5) file; skip invalid lines."""
    names: dict[str, list[str]] = {}
    for line in text.splitlines():
        fields = line.partition("#")[0].split()
        if fields and is_address(fields[0]):
            for name in fields[1:]:
                names.setdefault(name.lower(), []).append(fields[0])
    return names


def is_address(text: str) -> bool:
    """Return whether ``text`` is an IPv4 or IPv6 address, without brackets."""
    # The last character of most names shows that they are no address; parsing is much slower.
    return (text[-1:].isdigit() or ":" in text) and len(text) <= _LONGEST and _parses(text)


@lru_cache(maxsize=_PARSED)
def _parses(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


class LocalNames:
    """Finds the addresses of names that need no look-up.

    ``overrides`` maps an exact name or "*.suffix" to an address.

    :raises ValueError: an override is not an address; the message names the override
    """

    def __init__(self, overrides: Mapping[str, str], hosts: Mapping[str, list[str]]) -> None:
        self._overrides: dict[str, list[str]] = {}
        for name, address in overrides.items():
            bare = _without_brackets(address)
            if not is_address(bare):
                raise ValueError(f"{name!r} is mapped to {address!r}, which is not an address")
            self._overrides[name.lower().rstrip(".")] = [bare]
        self._hosts = hosts

    def find(self, name: str) -> list[str] | None:
        """Return the addresses of ``name`` (lower case, no root dot); None: ask the DNS.

        IPv4 addresses come first: a node without IPv6 must not try IPv6 first.
        """
        overridden = self._overridden(name) if self._overrides else None
        if overridden is not None:
            return overridden
        bare = _without_brackets(name)
        if is_address(bare):
            return [bare]
        if name == "localhost" or name.endswith(".localhost"):
            return ["127.0.0.1", "::1"]  # RFC 6761, section 6.3: no DNS query
        found = self._hosts.get(name)
        return None if found is None else sorted(found, key=lambda address: ":" in address)

    def _overridden(self, name: str) -> list[str] | None:
        found = self._overrides.get(name)
        _, dot, suffix = name.partition(".")
        while found is None and dot:
            found = self._overrides.get("*." + suffix)
            _, dot, suffix = suffix.partition(".")
        return found


def _without_brackets(text: str) -> str:
    return text.removeprefix("[").removesuffix("]")
