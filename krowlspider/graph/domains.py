"""The graph of domains, folded from that of hosts, as `HostToDomainGraph` of cc-webgraph does."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from krowlspider.catalogue.records.hosts import host_of
from krowlspider.graph.adjacency import Graph
from krowlspider.graph.hosts import reverse
from krowlspider.graph.text_form import Names
from krowlspider.urls.canonical import domain_of

if TYPE_CHECKING:
    from krowlspider.graph.adjacency import Places

_NONE = -1
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


class Folded(NamedTuple):
    """A graph of domains: its links, names, and the number of hosts of each."""

    graph: Graph
    names: Names
    hosts: Places


def domain_in_reverse(host: str) -> str | None:
    """Return the domain of a reversed host, in reverse; None of a public suffix.

    The domain is by the first section of the Public Suffix List, as in Common Crawl. Below an
    unknown suffix it is the last two labels. A Gemini server belongs to the domain of its name.
    """
    name = reverse(host.partition(":")[0])
    found = host_of(name)
    if found.registered_domain is not None:
        return reverse(found.registered_domain)
    return reverse(domain_of(name)) if found.registry_suffix is None else None


def fold(graph: Graph, names: Names) -> Folded:
    """Return the graph of the domains of the hosts of a graph.

    Links within a domain are left out, and so are hosts that are public suffixes.
    """
    of_hosts = [domain_in_reverse(host) for host in names]
    domains = sorted({domain for domain in of_hosts if domain is not None})
    numbers = {domain: number for number, domain in enumerate(domains)}
    numbers_or_none = (_NONE if each is None else numbers[each] for each in of_hosts)
    domain = np.fromiter(numbers_or_none, np.int64, len(of_hosts))
    hosts = np.bincount(domain[domain != _NONE], minlength=len(domains))
    sources, targets = domain[graph.sources], domain[graph.targets]
    kept = (sources != targets) & (sources != _NONE) & (targets != _NONE)
    pairs = sources[kept].astype(np.uint64) << _HALF | targets[kept].astype(np.uint64)
    keys = np.unique(pairs)
    folded = Graph(len(domains), (keys >> _HALF).astype(np.int32), (keys & _LOW).astype(np.int32))
    return Folded(folded, Names("".join(f"{each}\n" for each in domains).encode()), hosts)
