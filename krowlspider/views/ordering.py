"""Orders of a person to a running crawl, and what becomes of each in a sentence."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from krowlspider.cluster.transport.meta import BadMessage
from krowlspider.cluster.transport.order_post import OwnerError
from krowlspider.crawl.explain import Explanation
from krowlspider.engine.control import Control
from krowlspider.engine.steering import ForeignHostError, Steering
from krowlspider.errors import error_text
from krowlspider.frontier.admin.words import counted
from krowlspider.views.names import named_host, whole_host
from krowlspider.views.order_fields import BadRequestError, check_fields_for_owner
from krowlspider.views.statuses import ERRORS, status_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from typing import Self

    from scrapy.crawler import Crawler

    from krowlspider.cluster.transport.order_message import OrderAsk
    from krowlspider.cluster.transport.order_post import Plain
    from krowlspider.engine.importing import Taken


class Outcome(NamedTuple):
    """Whether an order has changed anything, and what is so now."""

    done: bool
    message: str


class BadLine(NamedTuple):
    """A line that is no seed and no entry: its number, and why."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """What became of the lines of a file: ``new`` ones were queued, ``sent`` ones go to the nodes
    that own them, ``known`` ones were known. ``done`` is whether there were new ones. The first
    bad lines are named."""

    done: bool
    message: str
    new: int
    sent: int
    known: int
    refused: dict[str, int]
    bad: int
    bad_lines: list[dict[str, int | str]]

    @classmethod
    def of(cls, taken: Taken) -> Self:
        refused, sent = taken.refused, taken.sent
        parts = [
            f"{taken.new:,} new",
            sent and f"{sent:,} sent to other nodes",
            f"{taken.known:,} known already",
            refused and f"{refused.total():,} refused ({_counts_text(refused)})",
            taken.bad and counted(taken.bad, "bad line"),
        ]
        return cls(
            bool(taken.new or sent),
            ", ".join(part for part in parts if part),
            taken.new,
            sent,
            taken.known,
            dict(refused),
            taken.bad,
            [BadLine(*each)._asdict() for each in taken.bad_lines],
        )


def _counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in sorted(counts.items()))


class Ordering:
    """Carries orders out for ``who``, as the log calls the person; hosts are given by name or URL.

    :raises KrowlError: the order cannot be carried out; nothing has changed
    :raises ValueError: as `KrowlError`
    """

    def __init__(self, crawler: Crawler, who: str):
        self._control = Control(crawler)
        self._steering = Steering(crawler, who)

    async def give(self, name: str, fields: dict[str, Any]) -> Outcome:
        """Carry the order ``name`` out, here or at the node that owns its host."""
        try:
            given = getattr(self, name)(**fields)
        except ForeignHostError as error:
            return await self.give_to(error.owner, name, fields)
        outcome: Outcome = await given if isawaitable(given) else given
        return outcome

    async def give_to(self, node: str, name: str, fields: dict[str, Any]) -> Outcome:
        """Have another node carry the order ``name`` out.

        :raises OwnerError: it cannot carry it out, or does not answer
        """
        found = await self._steering.ask_owner(node, name, fields)
        return Outcome(bool(found.get("done")), f"node {node}: {found.get('message')}")

    async def explain_at(self, here: Explanation) -> Explanation:
        """Return what the owner of a URL's host says, or, if it does not answer, that."""
        try:
            found = await self._steering.ask_owner(here.owner, "explain", {"url": here.url})
            return msgspec.convert({**found, "owner": here.owner}, Explanation)
        except OwnerError as error:
            return replace(here, why=f"Nobody here knows: {error}.")
        except msgspec.ValidationError as error:
            return replace(here, why=f"Node {here.owner} owns its host: ask there ({error}).")

    def pause(self, host: str = "") -> Outcome:
        """Pause the crawl, or a host."""
        if not host:
            self._steering.pause()
            return Outcome(True, "paused: krowl.resume() lets it go on")
        name = named_host(host)
        if self._steering.pause_host(name):
            return Outcome(True, f"{name} is paused: krowl.resume({name!r}) lets it go on")
        return Outcome(
            False,
            f"{name} is deferred, so nothing is sent to it now: pause it when it is tried again",
        )

    def resume(self, host: str = "") -> Outcome:
        """Let the crawl go on, or a host."""
        if not host:
            self._steering.resume()
            return Outcome(True, "it goes on")
        name = named_host(host)
        done = self._steering.resume_host(name)
        return Outcome(done, f"{name} {'goes on after its delay' if done else 'is not paused'}")

    def block(self, name: str) -> Outcome:
        """Block a host, a domain or a SURT prefix."""
        rule, done = self._steering.block(name)
        again = "" if done else " already"
        return Outcome(done, f"{rule} is blocked{again}: krowl.unblock({rule!r}) lets it go on")

    def unblock(self, name: str) -> Outcome:
        """End a block."""
        rule, done = self._steering.unblock(name)
        if not done:
            return Outcome(False, f"there is no block of {rule}")
        return Outcome(True, f"{rule} goes on, each host after its delay")

    def delay(self, host: str, seconds: float | None = None) -> Outcome:
        """Set the least delay of a host, or end that."""
        name = named_host(host)
        done = self._steering.delay(name, seconds)
        if seconds is None:
            return Outcome(done, f"{name} has the delay of the settings{' already' * (not done)}")
        return Outcome(
            True,
            f"{name} waits {seconds:g} s or more between requests: krowl.delay({name!r}) ends it",
        )

    def add(self, url: str, priority: int = 0) -> Outcome:
        """Queue a URL."""
        if self._steering.add(url, priority):
            return Outcome(True, "queued")
        return Outcome(False, f"not queued: {self._control.explain(url).why}")

    async def take(self, pieces: AsyncIterator[list[bytes]]) -> ImportOutcome:
        """Queue the URLs in lines."""
        return ImportOutcome.of(await self._steering.take(pieces))

    def forget(self, name: str) -> Outcome:
        """Forget a host, or queue a URL again that was fetched. A name with a scheme is a URL."""
        host = named_host(name)
        if "://" in name:
            return self._forget_page(name)
        host = whole_host(name, "for one URL, give it with http:// or https://")
        queued = counted(self._steering.forget(host), "URL")
        return Outcome(True, f"{host} is forgotten, with {queued} queued: links to it are new")

    def _forget_page(self, url: str) -> Outcome:
        found = self._control.explain(url)
        if found.state in {"queued", "in flight", "set aside"}:
            return Outcome(False, f"not forgotten: {found.why}")
        is_new = found.state in {"unknown", "refused"}
        if self._steering.forget_page(url):
            what = "was not known, and is queued" if is_new else "is forgotten, and queued again"
            return Outcome(True, f"{url} {what}")
        return Outcome(False, f"not queued again: {self._control.explain(url).why}")

    def reload(self) -> Outcome:
        """Read the files of settings again."""
        return Outcome(True, f"{', '.join(self._steering.reload())}: the log says what is found")

    async def snapshot(self, folder: str) -> Outcome:
        """Begin to take a snapshot."""
        target = Path(folder)
        if not target.is_absolute():
            raise BadRequestError(f"{folder} is not an absolute path")
        await self._steering.begin_snapshot(target)
        return Outcome(True, f"a snapshot to {target} is under way")

    def set(self, name: str, value: object) -> Outcome:
        """Change a setting until the process ends."""
        self._steering.set(name, value)
        return Outcome(True, f"{name}={value} until the process ends")


def carry_out(crawler: Crawler, asked: OrderAsk) -> Plain:
    """Carry an order out that a person has given to another node, and return its outcome.

    :raises BadMessage: it is no order for an owner
    :raises OwnerError: it cannot be carried out; nothing has changed
    """
    name, fields = asked.name, dict(asked.fields)
    try:
        check_fields_for_owner(name, fields)
        if name == "explain":
            return asdict(Control(crawler).explain(str(fields["url"])))
        orders = Ordering(crawler, f"{asked.who} at node {asked.node}")
        outcome: Outcome = getattr(orders, name)(**fields)
    except BadRequestError as error:
        raise BadMessage(str(error)) from error
    except ERRORS as error:
        raise OwnerError(error_text(error), status_of(error)) from error
    return outcome._asdict()
