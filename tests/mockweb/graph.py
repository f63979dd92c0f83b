"""The parameters of a generated web: its hosts, their addresses and their features."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, fields

FEATURES = frozenset(
    {
        "robots",  # robots.txt with rules on some hosts, and links to what they disallow
        "errors",  # links to pages that are gone
        "redirects",  # same host, other host, into a disallowed part, a chain, a loop
        "busy",  # pages that answer 429 or 503 before they answer 200
        "types",  # plain text and images
        "codings",  # gzip, chunked and close-delimited pages
        "slow",  # pages with latency
        "crawl_delay",  # Crawl-delay: 1 on one host in twenty
        "robots_trouble",  # one robots.txt that is a 500 at first, one that redirects
    }
)
"""All features of a graph."""

DEFAULT_FEATURES = FEATURES - {"robots_trouble"}
"""Without `robots_trouble`: a crawler may wait minutes before it retries a robots.txt of 500."""

_HOSTS_PER_A = 62_500
"""Addresses 127.a.x.y for one `a`. The first `a` is 10, to avoid 127.0.0.1."""

_FLAGS = {"1": True, "true": True, "0": False, "false": False}


@dataclass(frozen=True, slots=True)
class Graph:
    """A web of `hosts` hosts with `pages` pages each. Equal graphs give equal webs, byte for byte.

    With `by_name`, hosts are names like `host0001.test`, else addresses `127.x.y.z`. With `tls`,
    every third host has https. `port` and `tls_port` are those of the running server.
    """

    hosts: int
    pages: int
    seed: int
    by_name: bool = False
    tls: bool = False
    features: frozenset[str] = DEFAULT_FEATURES
    port: int = 0
    tls_port: int = 0

    def __post_init__(self) -> None:
        if self.hosts < 1 or self.pages < 1:
            raise ValueError(f"a graph needs a host and a page: {self.hosts} x {self.pages}")
        if unknown := self.features - FEATURES:
            raise ValueError(f"unknown features {sorted(unknown)}; there are {sorted(FEATURES)}")

    @classmethod
    def parse(cls, text: str) -> Graph:
        """Parse a graph like `hosts=300,pages=20,seed=7,tls=1,features=robots+busy`.

        `features=none` is a web without features.

        :raises ValueError: a field or value is unknown
        """
        values: dict[str, int | bool | frozenset[str]] = {}
        kinds = {field.name: field.type for field in fields(cls)}
        for part in text.split(","):
            name, _, value = part.partition("=")
            if name not in kinds:
                raise ValueError(f"unknown graph field {name!r}; there are {sorted(kinds)}")
            if kinds[name] == "bool":
                if value not in _FLAGS:
                    raise ValueError(f"{name} is 1 or 0, not {value!r}")
                values[name] = _FLAGS[value]
            elif name == "features":
                values[name] = frozenset(value.split("+")) - {"none", ""}
            else:
                values[name] = int(value)
        return cls(**{"seed": 0, **values})  # type: ignore[arg-type]

    def text(self) -> str:
        """Return the text that `parse` reads as this graph."""
        features = "+".join(sorted(self.features)) or "none"
        return (
            f"hosts={self.hosts},pages={self.pages},seed={self.seed},by_name={int(self.by_name)},"
            f"tls={int(self.tls)},features={features},port={self.port},tls_port={self.tls_port}"
        )

    def host(self, index: int) -> str:
        """Return the name or address of a host, without the port."""
        if self.by_name:
            return f"host{index:04d}.test"
        a, rest = divmod(index, _HOSTS_PER_A)
        return f"127.{10 + a}.{rest // 250}.{rest % 250 + 1}"

    def index(self, host: str) -> int | None:
        """Return the index of a host; None if it is not in this graph. The inverse of `host`."""
        if self.by_name:
            match = re.fullmatch(r"host(\d{4,})\.test", host)
            index = int(match[1]) if match else -1
        else:
            match = re.fullmatch(r"127\.(\d+)\.(\d+)\.(\d+)", host)
            a, b, c = map(int, match.groups()) if match else (0, 0, 0)
            index = (a - 10) * _HOSTS_PER_A + b * 250 + c - 1
        return index if 0 <= index < self.hosts and self.host(index) == host else None

    def secure(self, index: int) -> bool:
        """Return whether links to the host are https."""
        return self.tls and index % 3 == 2

    def authority(self, index: int) -> str:
        """Return `host:port`, as in a URL and in the Host header."""
        return f"{self.host(index)}:{self.tls_port if self.secure(index) else self.port}"

    def url(self, index: int, target: str = "/") -> str:
        """Return the absolute, normalised URL of a path (with its query) on a host."""
        return f"{'https' if self.secure(index) else 'http'}://{self.authority(index)}{target}"

    def seeds(self) -> list[str]:
        """Return the root of every host. The first reaches all the graph that robots.txt allows."""
        return [self.url(index) for index in range(self.hosts)]

    def rng(self, *key: int | str) -> random.Random:
        """Return the random generator of the part of the web that `key` names."""
        return random.Random(":".join(map(str, (self.seed, *key))))
