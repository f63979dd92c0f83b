"""The control service of a crawl: each call is a request to its API, or reads its archive."""

from __future__ import annotations

import asyncio
import re
from functools import wraps
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import msgspec

from krowlspider.engine.steering import DELAY_MAX
from krowlspider.errors import KrowlError, counted
from krowlspider.rpc.api import URLS_BURST, ApiError
from krowlspider.rpc.generated import krowl_pb2 as pb
from krowlspider.rpc.generated import krowl_pb2_grpc as pb_grpc
from krowlspider.rpc.stream import stream_results

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path
    from typing import TypeAlias

    from krowlspider.rpc.api import Api
    from krowlspider.rpc.grpc_server import GrpcServer
    from krowlspider.rpc.sheets import SheetFile

    Method: TypeAlias = Callable[[Any, Any, Any], Awaitable[Any]]

NAME = pb.DESCRIPTOR.services_by_name["CrawlService"].full_name
# URLs of a call that are queued at once, and that are queued again one by one.
SUBMITTED_MAX = URLS_BURST
FORCED_MAX = 100
# What a line of a file of seeds can begin with as a URL, and it has no blanks.
_WORD = re.compile(r"[^\s\0#\"{\ufeff][^\s\0]*")
# Figures of the status that have the same name and form in the proto.
_SAME = (
    *("spider", "folder", "seconds", "done", "queued", "deferred", "hosts", "due", "in_flight"),
    *("fetched", "dropped", "failed", "paused"),
)
# Fields that are keys of a sheet.
_KEYS = {"max_depth": "depth", "max_pages": "max_pages"}
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
}


def add_to(
    server: GrpcServer, api: Api, folders: Mapping[str, Path], sheets: SheetFile | None = None
) -> None:
    """Have a server offer the control service of a crawl, whose WARC files are in ``folders``, by
    the names of its processes. ``sheets`` is the file of KROWL_POLICIES."""
    service = CrawlService(api, folders, sheets, server.counts)
    pb_grpc.add_CrawlServiceServicer_to_server(service, server.aio)
    server.offer(NAME)


def _answers(method: Method) -> Method:
    """Have a method end its call with the code of an error that a person can mend."""

    @wraps(method)
    async def answer(self: Any, request: Any, context: Any) -> Any:
        try:
            return await method(self, request, context)
        except KrowlError as error:
            status = error.status if isinstance(error, ApiError) else 400
            self._counts["rate"] += status == 429
            await context.abort(_CODES.get(status, grpc.StatusCode.UNAVAILABLE), str(error))

    return answer


class CrawlService(pb_grpc.CrawlServiceServicer):
    """The methods have the names of the proto's; docs/grpc.md describes them. ``counts`` gets the
    calls refused by ``rate``, whose URLs come too fast, and those that are ``silent``."""

    def __init__(
        self,
        api: Api,
        folders: Mapping[str, Path],
        sheets: SheetFile | None,
        counts: Counter[str],
    ):
        self._api = api
        self._folders = folders
        self._sheets = sheets
        self._counts = counts

    @_answers
    async def SubmitUrls(self, request: Any, context: Any) -> Any:
        _check_count(len(request.urls), SUBMITTED_MAX)
        words = {
            "depth" if field.name == "max_depth" else field.name: value
            for field, value in request.ListFields()
            if field.name != "urls"
        }
        said = f"\t{msgspec.json.encode(words).decode()}" if words else ""
        is_bad = [_WORD.fullmatch(url) is None for url in request.urls]
        # A blank line is none; it keeps the number of the others.
        lines = ("" if bad else url + said for url, bad in zip(request.urls, is_bad, strict=True))
        body, count = "\n".join(lines).encode(), len(request.urls)
        found = await self._api.order("import", body, _who(context), count)
        bad = [{"line": at + 1, "reason": "not a URL"} for at, is_ in enumerate(is_bad) if is_]
        named = sorted([*found["bad_lines"], *bad], key=lambda each: each["line"])[:SUBMITTED_MAX]
        return pb.SubmitUrlsResponse(
            new=found["new"],
            sent=found["sent"],
            known=found["known"],
            refused=found["refused"],
            bad=found["bad"] + len(bad),
            bad_urls=[
                pb.BadUrl(index=each["line"] - 1, reason=each["reason"]) for each in named[:100]
            ],
        )

    async def StreamResults(self, request: Any, context: Any) -> None:
        try:
            await stream_results(self._folders, request, context, self._counts)
        except KrowlError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    @_answers
    async def GetStatus(self, _: Any, __: Any) -> Any:
        found = await self._api.get("status")
        return pb.GetStatusResponse(
            page_limit=found["of"] or 0,
            statuses={str(key): value for key, value in found["statuses"].items()},
            archive_bytes=round(found["archive_mb"] * 1e6),
            **{name: found[name] for name in _SAME},
        )

    @_answers
    async def SetCrawlerState(self, request: Any, context: Any) -> Any:
        fields = {"host": request.host} if request.host else {}
        done = await self._order(context, "pause" if request.paused else "resume", fields)
        return pb.SetCrawlerStateResponse(outcome=done)

    @_answers
    async def UpsertDomainPolicy(self, request: Any, context: Any) -> Any:
        keys = _keys_of(request)
        has_sheet = bool(keys) or request.remove_sheet
        if not (request.HasField("delay") or request.HasField("blocked") or has_sheet):
            raise KrowlError("no field but domain is set: give at least one of the others")
        if keys and request.remove_sheet:
            raise KrowlError(f"remove_sheet is set, and {next(iter(keys))} too: give one of them")
        done = []
        if request.delay != -1 and not 0 <= request.delay <= DELAY_MAX:
            raise KrowlError(
                f"delay is {request.delay:g}: give 0 to {DELAY_MAX:,.0f} s, or -1 for the delay of"
                " the settings"
            )
        if has_sheet:
            # First, as it may be refused.
            sheet = await self._put_sheet(context, request.domain, keys)
        if request.HasField("delay"):
            seconds = None if request.delay == -1 else request.delay
            done.append(
                await self._order(context, "delay", {"host": request.domain, "seconds": seconds})
            )
        if request.HasField("blocked"):
            name = "block" if request.blocked else "unblock"
            done.append(await self._order(context, name, {"name": request.domain}))
        if has_sheet:
            done.append(sheet)
        return pb.UpsertDomainPolicyResponse(outcomes=done)

    async def _put_sheet(self, context: Any, domain: str, keys: Mapping[str, Any]) -> Any:
        """Write the sheet of a domain into the file, which all processes and nodes read again."""
        sheets = self._sheets
        if sheets is None:
            raise ApiError(
                409,
                "the crawl has no sheets: start it with KROWL_POLICIES=FILE, which may be empty",
            )
        has_changed, said = await asyncio.to_thread(sheets.put, domain, keys)
        if not has_changed:
            return pb.Outcome(done=False, message=f"the sheet of {domain} is as before: {said}")
        await self._order(context, "reload", {})
        what = f"has {said}" if said else "is removed"
        message = f"the sheet of {domain} {what}: in force within two seconds"
        return pb.Outcome(done=True, message=message)

    @_answers
    async def ForceRecrawl(self, request: Any, context: Any) -> Any:
        _check_count(len(request.urls), FORCED_MAX)
        if (other := next((url for url in request.urls if "://" not in url), None)) is not None:
            # Without a scheme, the order would forget the host.
            raise KrowlError(f"{other[:100]!r} is not a URL: give it with http:// or https://")
        done = [await self._forget(context, url) for url in request.urls]
        return pb.ForceRecrawlResponse(outcomes=done)

    @_answers
    async def Explain(self, request: Any, _: Any) -> Any:
        if not request.url:
            raise KrowlError("url is empty: give one")
        found = await self._api.get("explain", {"url": request.url})
        return _message(pb.ExplainResponse, found)

    @_answers
    async def ListHosts(self, request: Any, _: Any) -> Any:
        given = {"sort": request.sort, "limit": request.limit, "state": request.state}
        query = {name: str(value) for name, value in given.items() if value}
        rows = await self._api.get("hosts", query)
        return pb.ListHostsResponse(hosts=[_message(pb.Host, row) for row in rows])

    @_answers
    async def BlockHost(self, request: Any, context: Any) -> Any:
        return pb.BlockHostResponse(
            outcome=await self._order(context, "block", {"name": request.name})
        )

    @_answers
    async def UnblockHost(self, request: Any, context: Any) -> Any:
        return pb.UnblockHostResponse(
            outcome=await self._order(context, "unblock", {"name": request.name})
        )

    async def _order(self, context: Any, name: str, fields: Mapping[str, Any]) -> Any:
        found = await self._api.order(name, msgspec.json.encode(fields), _who(context))
        return pb.Outcome(done=found["done"], message=found["message"])

    async def _forget(self, context: Any, url: str) -> Any:
        """Queue one URL of several again: one that cannot be does not keep the others back."""
        try:
            return await self._order(context, "forget", {"name": url})
        except ApiError as error:
            if error.status in {400, 404, 409}:
                return pb.Outcome(done=False, message=str(error))
            raise


def _keys_of(request: Any) -> dict[str, Any]:
    """Return the keys of a sheet that a request sets."""
    keys: dict[str, Any] = {
        key: getattr(request, field) for field, key in _KEYS.items() if request.HasField(field)
    }
    if request.HasField("recrawl_seconds"):
        keys |= dict.fromkeys(("recrawl_min", "recrawl_max"), request.recrawl_seconds)
    for key in ("include", "exclude"):
        if found := list(getattr(request, key)):
            keys[key] = found
    return keys


def _message(kind: Any, found: Mapping[str, Any]) -> Any:
    """Return a message with the fields of an answer that it knows."""
    return kind(**{name: found[name] for name in found.keys() & kind.DESCRIPTOR.fields_by_name})


def _who(context: Any) -> str:
    """Return what the log calls the client of a call."""
    return f"gRPC from {context.peer().partition(':')[2]}"


def _check_count(count: int, most: int) -> None:
    """:raises KrowlError: there is none, or there are too many"""
    if not 1 <= count <= most:
        raise KrowlError(f"{counted(count, 'URL')}: give 1 to {most:,} in a call")
