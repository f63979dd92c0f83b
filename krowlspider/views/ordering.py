"""Orders of a person to a running crawl, and what becomes of each in a sentence."""

from __future__ import annotations

from asyncio import gather
from dataclasses import asdict, dataclass, replace
from inspect import isawaitable
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from krowlspider.cluster.transport.message import BadMessage
from krowlspider.cluster.transport.posts import OrderAsk, OwnerError, Value
from krowlspider.engine.control import Control
from krowlspider.engine.steering import ForeignHostError, Steering
from krowlspider.errors import counted, error_text
from krowlspider.frontier.admin.edit import NAMED, Covered
from krowlspider.frontier.schedule.orders import (
    BLOCK,
    DELAY,
    PAUSE,
    StandingOrder,
    decode_orders,
    encode_orders,
)
from krowlspider.job.explain import Explanation
from krowlspider.urls.seeds import block_rule
from krowlspider.views.frontier import order_name, whole_host
from krowlspider.views.order_fields import (
    ERRORS,
    TAKE,
    BadRequestError,
    check_fields_for_owner,
    status_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from typing import Self

    from scrapy.crawler import Crawler

    from krowlspider.cluster.transport.posts import OrderFields
    from krowlspider.engine.importing import Taken

# The statuses of an owner that does not answer.
_SILENT = (503, 504)


class OrderOutcome(NamedTuple):
    """Whether an order has changed anything, what is so now, and what a standing order covers."""

    done: bool
    message: str
    covered: Covered | None = None


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

    async def give(self, name: str, fields: dict[str, Any]) -> OrderOutcome:
        """Carry the order ``name`` out: here, at the node that owns its host, or at all nodes."""
        if stands(name, fields):
            return await self.give_everywhere(name, fields)
        if self.is_for_all(name, fields):
            return await self.set_all_paused(paused=name == "pause")
        try:
            given = getattr(self, name)(**fields)
        except ForeignHostError as error:
            return await self.give_to(error.owner, name, fields)
        outcome: OrderOutcome = await given if isawaitable(given) else given
        return outcome

    async def give_to(self, node: str, name: str, fields: dict[str, Any]) -> OrderOutcome:
        """Have another node carry the order ``name`` out.

        :raises OwnerError: it cannot carry it out, or does not answer
        """
        found = await self._steering.ask_owner(node, name, fields)
        return OrderOutcome(bool(found.get("done")), f"node {node}: {found.get('message')}")

    @property
    def has_others(self) -> bool:
        """Return whether a standing order goes to other nodes too."""
        return bool(self._steering.other_nodes)

    async def give_everywhere(self, name: str, fields: dict[str, Any]) -> OrderOutcome:
        """Carry a standing order out here and at all other nodes. Those that do not answer get it
        when they are back."""
        given = self._stand(name, **fields)
        nodes = self._steering.other_nodes
        fields = {"orders": encode_orders([given.order])}
        asked = await gather(*(self._give_at(node, fields) for node in nodes))
        answers = [each for each in asked if not isinstance(each, OwnerError)]
        away = {
            node: each
            for node, each in zip(nodes, asked, strict=True)
            if isinstance(each, OwnerError)
        }
        return _said(
            given._replace(
                done=given.done or any(done for done, _ in answers),
                covered=Covered.sum([given.covered, *(covered for _, covered in answers)]),
            ),
            away,
        )

    async def _give_at(
        self, node: str, fields: dict[str, Any]
    ) -> tuple[bool, Covered] | OwnerError:
        """Have another node carry a standing order out. Return what it answers, or why it does
        not."""
        try:
            found = await self._steering.ask_owner(node, TAKE, fields)
            return bool(found.get("done")), msgspec.json.decode(str(found["covered"]), type=Covered)
        except OwnerError as error:
            self._steering.send_orders_again(node)
            return error
        except (KeyError, msgspec.MsgspecError) as error:
            return OwnerError(f"node {node}: it is of another version ({error})", 502)

    def is_for_all(self, name: str, fields: Mapping[str, Any]) -> bool:
        """Return whether an order pauses or resumes all nodes of a cluster."""
        return name in {"pause", "resume"} and not fields.get("host") and self._steering.is_node

    async def set_all_paused(self, *, paused: bool) -> OrderOutcome:
        """Pause all nodes of the cluster, or let them go on."""
        await self._steering.set_all_paused(paused=paused)
        if not paused:
            return OrderOutcome(True, "it goes on at all nodes, within 5 s")
        return OrderOutcome(
            True, "paused at all nodes, within 5 s: krowl.resume() at any of them lets it go on"
        )

    async def explain_at(self, here: Explanation) -> Explanation:
        """Return what the owner of a URL's host says, or, if it does not answer, that."""
        try:
            found = await self._steering.ask_owner(here.owner, "explain", {"url": here.url})
            return msgspec.convert({**found, "owner": here.owner}, Explanation)
        except OwnerError as error:
            return replace(here, why=f"Nobody here knows: {error}.")
        except msgspec.ValidationError as error:
            return replace(here, why=f"Node {here.owner} owns its host: ask there ({error}).")

    def pause(self, host: str = "") -> OrderOutcome:
        """Pause a crawl of one process, or the hosts of a name."""
        if not host:
            self._steering.pause()
            return OrderOutcome(True, "paused: krowl.resume() lets it go on")
        return _said(self._stand("pause", host))

    def resume(self, host: str = "") -> OrderOutcome:
        """Let a crawl of one process go on, or the hosts of a name."""
        if not host:
            self._steering.resume()
            return OrderOutcome(True, "it goes on")
        return _said(self._stand("resume", host))

    def block(self, name: str) -> OrderOutcome:
        """Block a host, a domain or a SURT prefix."""
        return _said(self._stand("block", name=name))

    def unblock(self, name: str) -> OrderOutcome:
        """End a block."""
        return _said(self._stand("unblock", name=name))

    def delay(self, host: str, seconds: float | None = None) -> OrderOutcome:
        """Set the least delay of the hosts of a name, or end that."""
        return _said(self._stand("delay", host, seconds))

    def take_orders(self, orders: str) -> dict[str, Value]:
        """Take standing orders of another node; return what the last one did and covers here."""
        done, rule = False, ""
        for order in decode_orders(orders):
            done, rule = self._steering.take_order(order), order.rule
        covered = self._steering.covers(rule) if rule else Covered([], 0, 0, 0)
        return {"done": done, "covered": msgspec.json.encode(covered).decode()}

    def _stand(
        self, given: str, /, host: str = "", seconds: float | None = None, name: str = ""
    ) -> _Given:
        """Give the standing order ``given`` here, or end it. A block has a ``name``, others have a
        ``host``."""
        kind = {"resume": PAUSE, "unblock": BLOCK}.get(given, given)
        rule = block_rule(name) if kind == BLOCK else order_name(host)
        ended = given != kind or (kind == DELAY and seconds is None)
        order, done = self._steering.stand(kind, rule, seconds or 0.0, ended=ended)
        return _Given(order, done, self._steering.covers(rule), self._steering.holder_of(rule))

    def add(self, url: str, priority: int = 0) -> OrderOutcome:
        """Queue a URL."""
        if self._steering.add(url, priority):
            return OrderOutcome(True, "queued")
        return OrderOutcome(False, f"not queued: {self._control.explain(url).why}")

    async def take(self, pieces: AsyncIterator[list[bytes]]) -> ImportOutcome:
        """Queue the URLs in lines."""
        return ImportOutcome.of(await self._steering.take(pieces))

    def forget(self, name: str) -> OrderOutcome:
        """Forget a host, or queue a URL again that was fetched. A name with a scheme is a URL."""
        if "://" in name:
            order_name(name)
            return self._forget_page(name)
        host = whole_host(name, "for one URL, give it with http:// or https://")
        found = self._steering.forget(host)
        names = ", ".join(each for each, _ in found[:NAMED])
        more = f" and {len(found) - NAMED:,} more" if len(found) > NAMED else ""
        queued = counted(sum(count for _, count in found), "URL")
        are = "are" if len(found) > 1 else "is"
        held = "" if (holder := self._steering.holder_of(host)) is None else f"; {_held(holder)}"
        return OrderOutcome(
            True, f"{names}{more} {are} forgotten, with {queued} queued: links to it are new{held}"
        )

    def _forget_page(self, url: str) -> OrderOutcome:
        found = self._control.explain(url)
        if found.state in {"queued", "in flight", "set aside"}:
            return OrderOutcome(False, f"not forgotten: {found.why}")
        is_new = found.state in {"unknown", "refused"}
        if self._steering.forget_page(url):
            what = "was not known, and is queued" if is_new else "is forgotten, and queued again"
            return OrderOutcome(True, f"{url} {what}")
        return OrderOutcome(False, f"not queued again: {self._control.explain(url).why}")

    def reload(self) -> OrderOutcome:
        """Read the files of settings again."""
        names = ", ".join(self._steering.reload())
        return OrderOutcome(
            True, f"{names}: read again within two seconds; the log says what is found"
        )

    async def snapshot(self, folder: str) -> OrderOutcome:
        """Begin to take a snapshot."""
        target = Path(folder)
        if not target.is_absolute():
            raise BadRequestError(f"{folder} is not an absolute path")
        await self._steering.begin_snapshot(target)
        return OrderOutcome(True, f"a snapshot to {target} is under way")

    def set(self, name: str, value: object) -> OrderOutcome:
        """Change a setting until the process ends."""
        self._steering.set(name, value)
        return OrderOutcome(True, f"{name}={value} until the process ends")


class _Given(NamedTuple):
    """A standing order, whether it changed anything, what it covers, and the order that holds its
    host back now."""

    order: StandingOrder
    done: bool
    covered: Covered
    holder: tuple[str, str, str] | None


def stands(name: str, fields: Mapping[str, Any]) -> bool:
    """Return whether an order is a standing one: for hosts, at all nodes, until it is ended."""
    return name in {"block", "unblock", "delay"} or bool(
        name in {"pause", "resume"} and fields.get("host")
    )


def _said(given: _Given, away: Mapping[str, OwnerError] = MappingProxyType({})) -> OrderOutcome:
    """Return what became of a standing order; nodes ``away`` have not carried it out."""
    message = f"{_effect(given)}. {given.covered.words}"
    if given.order.ended and (holder := given.holder) is not None:
        message = f"{_effect(given)}, but {_held(holder)}. {given.covered.words}"
    if given.order.ended and not given.covered.host_count:
        message = message.removesuffix(f". {given.covered.words}")
    for node, error in away.items():
        if error.status in _SILENT:
            message += f" Node {node} does not answer, and gets the order when it is back."
        else:
            message += f" Not carried out by {error}."
    return OrderOutcome(given.done, message, given.covered)


def _held(holder: tuple[str, str, str]) -> str:
    kind, rule, _ = holder
    return f"it is {'blocked' if kind == BLOCK else 'paused'} by {rule}"


def _effect(given: _Given) -> str:
    (kind, rule, _, _, seconds, ended), done = given.order, given.done
    again = "" if done else " already"
    if kind == DELAY:
        if ended:
            return f"{rule} has the delay of the settings{again}"
        end = f"krowl.delay({rule!r}) ends it"
        return f"{rule} waits {seconds:g} s or more between requests{again}: {end}"
    if not ended:
        held, end = ("blocked", "unblock") if kind == BLOCK else ("paused", "resume")
        return f"{rule} is {held}{again}: krowl.{end}({rule!r}) lets it go on"
    if done:
        return f"{rule} goes on, each host after its delay"
    return f"there is no block of {rule}" if kind == BLOCK else f"{rule} is not paused"


def carry_out(crawler: Crawler, asked: OrderAsk) -> OrderFields:
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
        if name == TAKE:
            return orders.take_orders(str(fields["orders"]))
        outcome: OrderOutcome = getattr(orders, name)(**fields)
    except BadRequestError as error:
        raise BadMessage(str(error)) from error
    except ERRORS as error:
        raise OwnerError(error_text(error), status_of(error)) from error
    return {"done": outcome.done, "message": outcome.message}
