"""Forget a host of an open frontier, as if another one had taken it over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.moves.transfer import give_up

if TYPE_CHECKING:
    from krowlspider.frontier.frontier import Frontier

# Most URLs of a host that is forgotten, queued or done: it is done in one turn of the event loop.
FORGOTTEN_MAX = 5000


def forget_now(frontier: Frontier, name: str) -> int | None:
    """Remove everything of a host, its seen marks too. Return how many URLs were queued; None for a
    host with more than FORGOTTEN_MAX URLs, of which nothing is changed.

    Its queue goes in one batch, with the note that its marks go too, which a restart completes.

    :raises HostBusyError: it has a request in flight or pages that are not acknowledged
    """
    schedule, queue = frontier.schedule, frontier.schedule.cache.get(name).queue
    if queue.pending + queue.done + queue.dropped > FORGOTTEN_MAX:
        return None
    host, queued = schedule.ownership.seal(name), queue.queued
    # No other node must be able to read its entries.
    for _ in give_up(frontier, host, ()):
        pass
    schedule.cache.remove(host)
    frontier.poisoned.discard(name)
    frontier.counters["dropped/operator"] += queued
    return queued
