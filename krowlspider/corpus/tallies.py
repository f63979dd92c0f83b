"""Pure: accepted and rejected pages by language, host and length, in bounded space."""

from __future__ import annotations

import msgspec

# Hosts of a slice that are counted singly, those with the most pages; and hosts of a whole corpus.
HOSTS_OF_SLICE = 1000
HOSTS_MAX = 100_000
# Characters of a name in the DNS.
_NAME_MAX = 253
# All other hosts together.
OTHERS = ""

# Accepted and rejected pages by name.
Pairs = dict[str, list[int]]


class Tallies(msgspec.Struct):
    """How many pages were accepted and rejected, by three properties.

    ``lengths`` has for "9" the texts of 256 to 511 characters: the bits of the number. Pages that
    were rejected unread have neither language nor length.
    """

    languages: Pairs = {}
    hosts: Pairs = {}
    lengths: Pairs = {}

    def count(self, url: str, language: str, chars: int, *, accepted: bool) -> None:
        pairs = [self.hosts.setdefault(name_of(url)[:_NAME_MAX], [0, 0])]
        if language:
            pairs.append(self.languages.setdefault(language, [0, 0]))
            pairs.append(self.lengths.setdefault(str(chars.bit_length()), [0, 0]))
        for pair in pairs:
            pair[0 if accepted else 1] += 1

    def add(self, other: Tallies) -> None:
        for ours, theirs in (
            (self.languages, other.languages),
            (self.hosts, other.hosts),
            (self.lengths, other.lengths),
        ):
            for name, pair in theirs.items():
                _add(ours.setdefault(name, [0, 0]), pair)
        if len(self.hosts) > 2 * HOSTS_MAX:
            self.keep_hosts(HOSTS_MAX)

    def keep_hosts(self, most: int) -> None:
        """Count only the ``most`` hosts with the most pages singly."""
        others = self.hosts.pop(OTHERS, [0, 0])
        names = sorted(self.hosts, key=lambda name: (-sum(self.hosts[name]), name))
        for name in names[most:]:
            _add(others, self.hosts.pop(name))
        if any(others):
            self.hosts[OTHERS] = others


def _add(pair: list[int], other: list[int]) -> None:
    pair[0] += other[0]
    pair[1] += other[1]


def name_of(url: str) -> str:
    """Return the lower-case host of a URL, without its port, however odd the URL is."""
    authority = url.partition("://")[2].partition("/")[0]
    return authority.rpartition("@")[2].partition(":")[0].lower()
