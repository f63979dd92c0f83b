"""The ranks of hosts that a search gets."""

from __future__ import annotations

import pytest

from krowlspider.graph.adjacency import Graph
from krowlspider.graph.build import DOMAIN, HOST, built, search_ranks
from krowlspider.graph.hosts import reverse
from krowlspider.graph.text_form import Names

MADE = 20_000
# Host, and the hosts to which it links.
WEB = {
    "a.org": ["www.good.org"],
    "b.org": ["www.good.org", "www.spam.com"],
    "c.org": ["www.good.org"],
    "one.github.io": ["two.github.io"],
    "d.org": ["one.github.io"],
    # A public suffix, which belongs to no domain.
    "co.uk": ["d.org"],
}


def ranks(links: dict[str, list[str]]) -> dict[str, list[float]]:
    """Return harmonic centrality and PageRank of each host, as a search gets them."""
    hosts = sorted({reverse(each) for host, to in links.items() for each in (host, *to)})
    number = {name: place for place, name in enumerate(hosts)}
    pairs = [(number[reverse(a)], number[reverse(b)]) for a, to in links.items() for b in to]
    graph = Graph.of(len(hosts), pairs)
    names = Names("".join(f"{each}\n" for each in hosts).encode())
    graphs = (built(level, graph, names) for level in (HOST, DOMAIN))
    return {name: values for name, *values in search_ranks(*graphs)}


def test_made_hosts_below_a_domain_raise_none_of_them() -> None:
    """Neither their links to one host, nor those between them."""
    before = ranks(WEB)
    made = [f"h{number}.spam.com" for number in range(MADE)]
    after = ranks(WEB | {each: ["www.spam.com", made[0]] for each in made[1:]})
    assert after["www.spam.com"][0] == before["www.spam.com"][0] == 1.0
    assert after[made[0]][0] <= 1.0
    assert after["www.good.org"][0] == pytest.approx(3.0, rel=0.1)
    assert max(after["www.spam.com"][1], after[made[0]][1]) < after["www.good.org"][1]


def test_a_host_at_a_provider_has_no_rank_of_the_provider() -> None:
    found = ranks(WEB | {f"{n}.org": ["three.github.io"] for n in range(9)})
    assert found["three.github.io"][0] == 9.0
    assert found["two.github.io"][0] == pytest.approx(1 + 1 / 2 + 1 / 3)


def test_a_public_suffix_keeps_its_own_rank() -> None:
    found = ranks(WEB | {"a.org": ["co.uk"]})
    assert found["co.uk"][0] == 1.0
