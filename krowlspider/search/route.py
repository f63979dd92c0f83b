"""The routes of search: a page for browsers, JSON for programs, and the text of a capture."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from aiohttp import web

from krowlspider.cdx.pace import ClientWork, Pace
from krowlspider.errors import KrowlError, error_text
from krowlspider.job.monitoring.endpoint import MORE_TIME
from krowlspider.search.formats import FIELDS, Captures, as_object, query_of
from krowlspider.search.page import failure, page, style
from krowlspider.search.searcher import LIMIT_MAX, RANKED_MAX, Searcher

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from krowlspider.job.monitoring.endpoint import Route

_T = TypeVar("_T")

# Queries that are answered at a time, each in a thread, and further ones that wait for one.
ANSWERS_MAX = 4
WAITING_MAX = 16
# Seconds for an answer, the wait included; a thread that takes longer keeps its place.
SECONDS = 10.0
# Results of a page.
EACH = 10
# Seconds between two looks at an answer that takes long.
_LOOK = 1.0
# The page loads its own style only, and its form asks this server; nobody frames it.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_PARAMETERS = ("q", *FIELDS, "page", "limit", "explain")
_NUMBER = re.compile("[0-9]{1,4}")


class _BusyError(Exception):
    """There is no place for a query, or its time is over. The message is for a person."""


class _Asked(NamedTuple):
    """The parameters of a request, and the part of the answer that it asks for."""

    given: dict[str, str]
    number: int
    limit: int

    @classmethod
    def of(cls, request: web.BaseRequest) -> _Asked:
        """:raises ValueError: a number is wrong; the message names it"""
        query = request.query
        # What is no text in UTF-8 cannot be sent back.
        given = {
            name: query[name].encode(errors="replace").decode()
            for name in _PARAMETERS
            if name in query
        }
        limit = _number(given, "limit", EACH, LIMIT_MAX)
        return cls(given, _number(given, "page", 1, RANKED_MAX), limit)

    @property
    def offset(self) -> int:
        return (self.number - 1) * self.limit


def _number(given: dict[str, str], name: str, usual: int, most: int) -> int:
    text = given.get(name, "") or str(usual)
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= most:
        raise ValueError(f"{name}={text[:20]}: give 1 to {most}")
    return int(text)


class SearchRoute:
    """Answers queries of the index in a folder, which may be made later. All answers together take
    at most about ``share`` of a core, if that is below 1."""

    def __init__(
        self, folder: Path, captures: Captures, share: float = 1.0, seconds: float = SECONDS
    ):
        self._folder = folder
        self._captures = captures
        self._pace = Pace(share)
        self._seconds = seconds
        self._searcher: Searcher | None = None
        self._places = asyncio.Semaphore(ANSWERS_MAX)
        self._waiting = 0
        self._threads: ThreadPoolExecutor | None = None

    def routes(self) -> dict[str, Route]:
        """Return what answers at each path."""
        return {
            "/search": partial(self._answer, self._page, _page_failure),
            "/search.css": _style,
            "/search/text": partial(self._answer, self._text, _text_failure),
            "/search.json": partial(self._answer, self._json, _json_failure),
        }

    async def _answer(
        self,
        make: Callable[[web.BaseRequest], web.Response],
        fail: Callable[[int, str, web.BaseRequest], web.Response],
        request: web.BaseRequest,
    ) -> web.Response:
        try:
            made = await self._in_thread(partial(make, request), request)
        except ValueError as error:
            made = fail(400, str(error), request)
        except _BusyError as error:
            made = fail(503, str(error), request)
            made.headers["Retry-After"] = "2"
        except KrowlError as error:
            # The index is missing, damaged, or of another form.
            made = fail(503, error_text(error), request)
        made.headers.update(HEADERS)
        return made

    async def _in_thread(self, act: Callable[[], _T], request: web.BaseRequest) -> _T:
        """Return what a thread does, in a place of its own.

        :raises _BusyError: no place is free, or the time is over
        """
        if self._waiting >= WAITING_MAX:
            raise _BusyError("too many queries are being answered: ask again later")
        client_work = ClientWork(self._pace)
        request[MORE_TIME]()
        late = _BusyError(f"this took more than {self._seconds:g} s: give more or rarer words")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._seconds):
                await self._places.acquire()
        except TimeoutError:
            raise late from None
        finally:
            self._waiting -= 1

        def work() -> _T:
            with client_work.working():
                return act()

        if self._threads is None:
            self._threads = ThreadPoolExecutor(ANSWERS_MAX, thread_name_prefix="search")
        doing = asyncio.get_running_loop().run_in_executor(self._threads, work)
        doing.add_done_callback(self._free)
        end = asyncio.get_running_loop().time() + self._seconds
        try:
            # A thread cannot be stopped: its place is taken until it ends.
            while not (await asyncio.wait([doing], timeout=min(_LOOK, self._seconds)))[0]:
                request[MORE_TIME]()
                if asyncio.get_running_loop().time() >= end:
                    raise late
        finally:
            client_work.end()
        return doing.result()

    def _free(self, done: asyncio.Future[_T]) -> None:
        self._places.release()
        if not done.cancelled():
            # If the client went first, nobody asks how it ended.
            done.exception()

    @property
    def _search(self) -> Searcher:
        if self._searcher is None:
            self._searcher = Searcher(self._folder)
        return self._searcher

    def _page(self, request: web.BaseRequest) -> web.Response:
        asked = _Asked.of(request)
        query = query_of(asked.given.get("q", ""), asked.given)
        found = self._search.search(
            query,
            limit=EACH,
            offset=(asked.number - 1) * EACH,
            explain=bool(asked.given.get("explain")),
        )
        return _html(page(found, asked.given, asked.number, EACH, self._captures))

    def _json(self, request: web.BaseRequest) -> web.Response:
        asked = _Asked.of(request)
        query = query_of(asked.given.get("q", ""), asked.given)
        if query.is_empty:
            raise ValueError("give ?q= with what is searched")
        found = self._search.search(
            query,
            limit=asked.limit,
            offset=asked.offset,
            explain=bool(asked.given.get("explain")),
        )
        return web.json_response(as_object(found))

    def _text(self, request: web.BaseRequest) -> web.Response:
        url = request.query.get("url", "").strip()
        if not url:
            raise ValueError("give ?url= of a page in the index")
        if (text := self._search.text(url)) is None:
            return _text_failure(
                404, "this page is not in the index, or its WARC file is gone", request
            )
        # Whatever the page was, a browser shows letters.
        return web.Response(text=text, content_type="text/plain", charset="utf-8")


def _html(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, content_type="text/html", charset="utf-8")


def _page_failure(status: int, why: str, request: web.BaseRequest) -> web.Response:
    given = {
        name: request.query.get(name, "").encode(errors="replace").decode()
        for name in ("q", *FIELDS)
    }
    return _html(failure(why, given), status)


def _json_failure(status: int, why: str, _: web.BaseRequest) -> web.Response:
    return web.json_response({"error": why}, status=status)


def _text_failure(status: int, why: str, _: web.BaseRequest) -> web.Response:
    return web.Response(text=f"{why}\n", status=status, content_type="text/plain", charset="utf-8")


def _style(_: web.BaseRequest) -> web.Response:
    # It holds nothing of the crawl.
    headers = {**HEADERS, "Content-Type": "text/css; charset=utf-8"}
    return web.Response(body=style(), headers=headers)


def to_search(_: web.BaseRequest) -> web.Response:
    """Lead a browser from / to the page."""
    return web.Response(status=307, headers={**HEADERS, "Location": "/search"})
