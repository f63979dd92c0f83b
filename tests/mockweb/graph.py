"""The shape of a generated web: which hosts there are, where they live, what features they have."""

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
"""Everything a graph can have."""

DEFAULT_FEATURES = FEATURES - {"robots_trouble"}
"""`robots_trouble` is asked for: a crawler may well wait minutes before it asks a 500 again."""

_HOSTS_PER_A = 62_500
"""250 * 250 addresses 127.a.x.y for one `a`, which starts at 10 to stay clear of 127.0.0.1."""

_FLAGS = {"1": True, "true": True, "0": False, "false": False}


@dataclass(frozen=True, slots=True)
class Graph:
    """A web of `hosts` hosts with `pages` pages each; equal graphs are equal webs, byte for byte.

    `by_name`: hosts are `host0001.test`, else addresses `127.x.y.z`. `tls`: every third host is
    reached over https. `port` and `tls_port` are those of the server, known once it runs.
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
        """The graph written as `hosts=300,pages=20,seed=7,tls=1,features=robots+busy`.

        Raises ValueError on an unknown field or value; `features=none` is a web without trouble.
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
        """What `parse` reads back as this graph."""
        features = "+".join(sorted(self.features)) or "none"
        return (
            f"hosts={self.hosts},pages={self.pages},seed={self.seed},by_name={int(self.by_name)},"
            f"tls={int(self.tls)},features={features},port={self.port},tls_port={self.tls_port}"
        )

    def host(self, index: int) -> str:
        """The name or address of a host, without the port."""
        if self.by_name:
            return f"host{index:04d}.test"
        a, rest = divmod(index, _HOSTS_PER_A)
        return f"127.{10 + a}.{rest // 250}.{rest % 250 + 1}"

    def index(self, host: str) -> int | None:
        """The host's index, the inverse of `host`; None when it is not of this graph."""
        if self.by_name:
            match = re.fullmatch(r"host(\d{4,})\.test", host)
            index = int(match[1]) if match else -1
        else:
            match = re.fullmatch(r"127\.(\d+)\.(\d+)\.(\d+)", host)
            a, b, c = map(int, match.groups()) if match else (0, 0, 0)
            index = (a - 10) * _HOSTS_PER_A + b * 250 + c - 1
        return index if 0 <= index < self.hosts and self.host(index) == host else None

    def secure(self, index: int) -> bool:
        """Whether links to the host are https."""
        return self.tls and index % 3 == 2

    def authority(self, index: int) -> str:
        """`host:port`, as in a URL and in the Host header."""
        return f"{self.host(index)}:{self.tls_port if self.secure(index) else self.port}"

    def url(self, index: int, target: str = "/") -> str:
        """The absolute URL of a path (with its query) on a host, WHATWG-normalised."""
        return f"{'https' if self.secure(index) else 'http'}://{self.authority(index)}{target}"

    def seeds(self) -> list[str]:
        """The root of every host; the first one alone reaches the whole graph, but for robots."""
        return [self.url(index) for index in range(self.hosts)]

    def rng(self, *key: int | str) -> random.Random:
        """The source of everything random about the thing named by `key`."""
        return random.Random(":".join(map(str, (self.seed, *key))))
