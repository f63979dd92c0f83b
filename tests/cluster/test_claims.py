"""What one node claims, and which domains it may fetch by the claims of all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from krowlspider.cluster.ring.claims import CLAIMS_MAX, Claimant, RegisterReading, next_claims
from krowlspider.cluster.ring.ring import Claims, Member, Ring
from tests.cluster.claims_world import DOMAINS, NEW, OLD, ring, view


def reading(epoch: int, *, leaving: str = "", **claims: Claims) -> RegisterReading:
    """``leaving`` has those who do not stay, by their letters."""
    return RegisterReading(epoch, tuple(Member(n) for n in claims if n not in leaving), claims)


def moving(old: Ring, new: Ring, node: str) -> list[str]:
    """Domains that the old ring gives to a node, and the new one does not."""
    return [d for d in (f"m{i}.test" for i in range(300)) if new.owner(d) != node == old.owner(d)]


def staying(old: Ring, new: Ring, node: str) -> list[str]:
    return [d for d in (f"m{i}.test" for i in range(300)) if new.owner(d) == node == old.owner(d)]


def settled(own: str, *names: str, epoch: int = 1) -> Claimant:
    """A node among others, all of which claim the one ring."""
    claimant = Claimant(own)
    claimant.update(reading(0, **{name: () if name == own else (ring(*names),) for name in names}))
    claimant.begin((ring(*names),))
    claimant.confirm(reading(epoch, **{name: (ring(*names),) for name in names}))
    return claimant


GOING = moving(OLD, NEW, "a")
KEPT = staying(OLD, NEW, "a")


def test_claim_is_in_force_after_store_and_reading() -> None:
    node = Claimant("a")
    assert node.wanted(None) is None
    node.update(reading(1, a=(), b=(OLD,)))
    assert not view(node).may_fetch(KEPT[0])
    assert node.wanted(None) == (OLD,)
    node.begin((OLD,))
    node.update(reading(2, a=(OLD,), b=(OLD,)))
    assert not view(node).may_fetch(KEPT[0])
    node.confirm(reading(2, a=(OLD,), b=(OLD,)))
    assert view(node).may_fetch(KEPT[0])
    assert node.wanted(None) is None
    assert view(node).agreed


def test_a_host_is_of_the_owner_of_its_domain() -> None:
    seen = view(settled("a", "a", "b"))
    for domain in DOMAINS:
        for host in (domain, f"www.{domain}", f"b.c.{domain}:8080"):
            assert seen.host_owner(host) == seen.ring.owner(domain)


def test_join_keeps_old_claim_until_the_hand_over_is_done() -> None:
    node = settled("a", "a", "b")
    node.update(reading(2, a=(OLD,), b=(OLD,), c=()))
    going = GOING[0]
    assert view(node).ring.owner(going) == "c"
    assert not view(node).may_fetch(going)
    assert view(node).may_fetch(KEPT[0])
    # The old claim locks what the new ring gives us: nothing to publish until the hand-over is
    # done.
    assert node.wanted(None) is None
    assert node.wanted(OLD.checksum) is None
    assert node.wanted(NEW.checksum) == (NEW,)
    node.begin((NEW,))
    assert view(node).may_fetch(KEPT[0])
    node.confirm(reading(3, a=(NEW,), b=(OLD,), c=()))
    assert view(node).may_fetch(KEPT[0])
    assert not view(node).agreed


def test_new_owner_waits_for_all_former_owners() -> None:
    node = settled("c", "a", "b", "c")
    node.update(reading(2, a=(OLD,), b=(NEW,), c=(NEW,)))
    from_b = moving(OLD, NEW, "b")
    assert not any(view(node).may_fetch(domain) for domain in GOING)
    assert all(view(node).may_fetch(domain) for domain in from_b)
    node.update(reading(3, a=(NEW,), b=(NEW,), c=(NEW,)))
    assert all(view(node).may_fetch(domain) for domain in GOING + from_b)


def test_gone_node_frees_its_domains_after_a_publish() -> None:
    node = settled("a", "a", "b", "c")
    node.update(reading(2, a=(NEW,), b=(NEW,)))
    assert all(view(node).may_fetch(domain) for domain in KEPT)
    assert not any(view(node).may_fetch(domain) for domain in GOING)
    assert node.wanted(None) == (OLD,)
    node.begin((OLD,))
    assert all(view(node).may_fetch(domain) for domain in KEPT)
    node.confirm(reading(3, a=(OLD,), b=(NEW,)))
    assert all(view(node).may_fetch(domain) for domain in KEPT + GOING)


def test_older_reading_is_ignored() -> None:
    node = settled("a", "a", "b", epoch=5)
    node.update(reading(4, a=(NEW,), b=(NEW,), c=(NEW,)))
    assert view(node).ring == OLD
    assert view(node).reading.epoch == 5


@pytest.mark.parametrize("others", [{}, {"b": (OLD,)}])
def test_reading_without_us_keeps_the_ring_and_ends_our_claims(others: dict[str, Claims]) -> None:
    node = settled("a", "a", "b", epoch=5)
    node.update(reading(6, **others))
    assert view(node).ring == OLD
    assert not view(node).may_fetch(KEPT[0])
    # The register of before may have been lost, and count anew.
    node.update(reading(1, a=(OLD,), b=(OLD,)))
    assert not view(node).may_fetch(KEPT[0])
    assert node.wanted(None) == (OLD,)
    node.begin((OLD,))
    node.confirm(reading(2, a=(OLD,), b=(OLD,)))
    assert view(node).may_fetch(KEPT[0])


def test_claim_that_the_register_lost_is_not_in_force() -> None:
    node = settled("a", "a", "b")
    node.update(reading(2, a=(), b=(OLD,)))
    assert not view(node).may_fetch(KEPT[0])
    assert node.wanted(None) == (OLD,)


def test_publish_of_unknown_outcome_is_repeated() -> None:
    node = settled("a", "a", "b", "c")
    node.update(reading(2, a=(NEW,), b=(NEW,)))
    node.begin((OLD,))
    node.update(reading(3, a=(OLD,), b=(NEW,)))
    assert not any(view(node).may_fetch(domain) for domain in GOING)
    assert node.wanted(None) == (OLD,)


def test_confirming_with_an_older_reading_keeps_the_newer() -> None:
    node = settled("a", "a", "b", "c")
    node.update(reading(2, a=(NEW,), b=(NEW,)))
    node.begin((OLD,))
    node.update(reading(5, a=(OLD,), b=(NEW,), c=(NEW,)))
    node.confirm(reading(3, a=(OLD,), b=(NEW,)))
    assert view(node).reading.epoch == 5
    assert not any(view(node).may_fetch(domain) for domain in GOING)


def test_publish_confirmed_after_the_lease_ended_is_void() -> None:
    node = settled("a", "a", "b")
    node.begin((OLD,))
    node.give_up()
    node.confirm(reading(9, a=(OLD,), b=(OLD,)))
    assert not view(node).may_fetch(KEPT[0])


def test_number_of_claims_is_bounded() -> None:
    # Each time another node joins while one leaves, so that no ring makes another superfluous.
    rings = [ring("a", f"n{number}") for number in range(CLAIMS_MAX + 3)]
    held: Claims = ()
    for now in rings:
        held = next_claims("a", held, now, handed_over=None)
    assert held == tuple(rings[:CLAIMS_MAX])
    assert next_claims("a", held, rings[-1], handed_over=rings[-1].checksum) == (rings[-1],)


def test_domains_of_a_leaving_node_rest_until_it_is_gone() -> None:
    node = settled("a", "a", "b", "c")
    node.update(reading(2, leaving="c", a=(NEW,), b=(NEW,), c=(NEW,)))
    assert view(node).ring == OLD
    assert node.wanted(NEW.checksum) == (OLD,)
    node.begin((OLD,))
    node.confirm(reading(3, leaving="c", a=(OLD,), b=(OLD,), c=(NEW,)))
    assert not view(node).agreed
    assert all(view(node).may_fetch(domain) for domain in KEPT)
    assert not any(view(node).may_fetch(domain) for domain in GOING)
    node.update(reading(4, a=(OLD,), b=(OLD,)))
    assert all(view(node).may_fetch(domain) for domain in KEPT + GOING)


def test_leaving_node_owns_nothing_and_keeps_its_claims() -> None:
    node = settled("c", "a", "b", "c")
    assert node.leave() == (NEW,)
    node.confirm(reading(2, leaving="c", a=(NEW,), b=(NEW,), c=(NEW,)))
    going = moving(NEW, OLD, "c")
    assert view(node).leaving
    assert view(node).ring == OLD
    assert view(node).in_force == (NEW,)
    assert not any(view(node).may_fetch(domain) for domain in going)
    assert {view(node).ring.owner(domain) for domain in going + DOMAINS} == {"a", "b"}
    for moved in (None, OLD.checksum):
        assert node.wanted(moved) is None


def test_domains_of_a_dead_node_rest_and_nothing_is_agreed() -> None:
    node = settled("a", "a", "b")
    assert view(node).agreed
    node.update(replace(reading(2, a=(OLD,), b=(OLD,)), dead=frozenset("b")))
    assert not view(node).agreed
    assert all(view(node).may_fetch(each) == (OLD.owner(each) == "a") for each in DOMAINS)


def test_leaving_node_knows_which_nodes_are_unaware() -> None:
    node = settled("c", "a", "b", "c")
    node.leave()
    node.confirm(reading(2, leaving="c", a=(NEW,), b=(NEW, OLD), c=(NEW,)))
    assert view(node).unaware == ("a",)
    node.update(reading(3, leaving="c", a=(OLD,), b=(OLD,), c=(NEW,)))
    assert view(node).unaware == ()


def test_all_nodes_leaving_keep_what_they_have() -> None:
    node = settled("a", "a", "b")
    node.leave()
    node.confirm(reading(2, leaving="ab", a=(OLD,), b=(OLD,)))
    assert view(node).leaving
    assert {view(node).ring.owner(domain) for domain in DOMAINS} == {"a"}
    assert not any(view(node).may_fetch(domain) for domain in KEPT + GOING)
    assert node.wanted(None) is None
    # One more comes while they go: what is here is its.
    node.update(reading(3, leaving="ab", a=(OLD,), b=(OLD,), c=()))
    assert view(node).ring.owner(KEPT[0]) == "c"


def test_leaving_without_a_lease_publishes_the_stored_claims() -> None:
    node = settled("a", "a", "b")
    node.give_up()
    assert node.leave() == (OLD,)
    node.confirm(reading(1, leaving="a", a=(OLD,), b=(OLD,)))
    assert view(node).in_force == (OLD,)
    assert not view(node).may_fetch(KEPT[0])


def test_leaving_during_a_publish_keeps_what_both_lock() -> None:
    node = settled("a", "a", "b")
    node.update(reading(2, a=(OLD,), b=(OLD,), c=()))
    node.begin((NEW,))
    assert node.leave() == (NEW,)
    node = settled("a", "a", "b", "c")
    node.update(reading(2, a=(NEW,), b=(NEW,)))
    node.begin((OLD,))
    assert node.leave() == (NEW,)
