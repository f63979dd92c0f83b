"""What the browser asks for beside its page: which requests are made, and what comes back.

Only GET and HEAD are made, as a crawl changes nothing at the sites that it reads.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from scrapy import Request
from scrapy.exceptions import DownloadTimeoutError, IgnoreRequest

from krowlspider.browser.proxy import BrowserRequest, BrowserResponse, Headers
from krowlspider.job.answers.retries import failure_kind
from krowlspider.urls.canonical import normalise

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy.http import Response

# Requests of one page that are answered: a page that reloads itself for ever ends.
REQUESTS_MAX = 1000
# Bytes of the style sheets, scripts, fonts and pictures that are kept for the next pages, the
# largest of them, and the seconds for which each is kept.
KEPT_BYTES = 64 * 1024 * 1024
_KEPT_SIZE = 4 * 1024 * 1024
KEPT_SECONDS = 600.0
_KEPT_KINDS = frozenset({b"style", b"script", b"font", b"image"})
# Without TLS the browser does not say what a file is for.
_KEPT_TYPES = (b"text/css", b"text/javascript", b"application/javascript", b"font/", b"image/")
_NOT_KEPT = (b"no-store", b"no-cache", b"private", b"max-age=0")

# Headers of the browser that no request gets: those of its connection to the proxy, those that the
# crawl sets itself, and conditions. Whole files are fetched and archived.
_NOT_SENT = frozenset(
    {
        *(b"host", b"connection", b"keep-alive", b"te", b"upgrade", b"content-length"),
        *(b"proxy-connection", b"proxy-authorization", b"user-agent", b"accept-encoding"),
        *(b"range", b"if-range", b"if-none-match", b"if-modified-since"),
        *(b"if-match", b"if-unmodified-since", b"cache-control", b"pragma"),
    }
)
# Headers of an answer that are not of its content, that send the browser elsewhere, or that have it
# wait for a person who knows a password.
_NOT_HANDED_ON = frozenset(
    {
        *(b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"trailer"),
        *(b"content-encoding", b"proxy-authenticate", b"proxy-connection", b"upgrade"),
        *(b"www-authenticate", b"alt-svc", b"nel", b"report-to", b"reporting-endpoints"),
    }
)
# A request goes through the middlewares as a spider's, but the browser follows redirects, keeps
# cookies and takes errors as they are.
_META = {
    **dict.fromkeys(("handle_httpstatus_all", "dont_redirect", "dont_retry"), True),
    **dict.fromkeys(("dont_merge_cookies", "dont_cache"), True),
}


@dataclass(eq=False)
class Visit:
    """A page in the browser, with the answer that was fetched for it.

    ``url`` was fetched; ``urls`` are its forms. ``name`` is its user name at the proxy.
    """

    name: str
    request: Request
    url: str
    urls: frozenset[str]
    response: Response
    asked: int = 0


class KeptFiles:
    """The last files that other pages may need too. ``clock`` returns monotonic seconds.

    A file is kept for each origin that asks for it: its headers may allow only that one.
    """

    def __init__(self, clock: Callable[[], float], most: int = KEPT_BYTES):
        self._clock = clock
        self._most = most
        self._size = 0
        # The oldest first, each with its time.
        self._files: OrderedDict[tuple[str, bytes], tuple[float, BrowserResponse]] = OrderedDict()

    def get(self, ask: BrowserRequest, url: str) -> BrowserResponse | None:
        found = self._files.get((url, ask.value(b"origin")))
        if found is None or self._clock() - found[0] > KEPT_SECONDS or ask.method != "GET":
            return None
        return found[1]

    def keep(self, ask: BrowserRequest, url: str, answer: BrowserResponse) -> None:
        """Keep an answer, if it is a file that other pages may be shown with."""
        size = len(answer.body)
        if size > _KEPT_SIZE or not _may_keep(ask, answer):
            return
        key = (url, ask.value(b"origin"))
        if (old := self._files.pop(key, None)) is not None:
            self._size -= len(old[1].body)
        self._files[key] = (self._clock(), answer)
        self._size += size
        while self._size > self._most:
            _, (_, oldest) = self._files.popitem(last=False)
            self._size -= len(oldest.body)


def _may_keep(ask: BrowserRequest, answer: BrowserResponse) -> bool:
    if answer.status != HTTPStatus.OK or ask.method != "GET":
        return False
    values = {name: value.lower() for name, value in answer.headers}
    kind = ask.value(b"sec-fetch-dest")
    media_type = values.get(b"content-type", b"")
    if not (kind in _KEPT_KINDS if kind else media_type.startswith(_KEPT_TYPES)):
        return False
    vary = {each.strip() for each in values.get(b"vary", b"").split(b",")}
    return not (
        b"set-cookie" in values
        or any(word in values.get(b"cache-control", b"") for word in _NOT_KEPT)
        or vary - {b"", b"accept-encoding", b"origin"}
    )


class Subrequests:
    """Answers the requests of the pages that are open in the browser.

    ``fetch`` fetches a request for the page at a URL, under all rules of the crawl. ``clock`` is as
    in `KeptFiles`.
    """

    def __init__(
        self,
        fetch: Callable[[Request, str], Awaitable[Response]],
        count: Callable[[str], object],
        clock: Callable[[], float],
    ):
        self._fetch = fetch
        self._count = count
        self._kept = KeptFiles(clock)
        self._visits: dict[str, Visit] = {}

    def open(self, request: Request, url: str, response: Response) -> Visit:
        """Answer the requests of a page from now on; ``url`` is the one that was fetched."""
        urls = frozenset(filter(None, (url, normalise(request.url))))
        visit = Visit(secrets.token_hex(8), request, url, urls, response)
        self._visits[visit.name] = visit
        return visit

    def close(self, visit: Visit) -> None:
        self._visits.pop(visit.name, None)

    def knows(self, name: str) -> bool:
        """Return whether a page is open."""
        return name in self._visits

    async def answer(self, ask: BrowserRequest) -> BrowserResponse:
        """Return the answer to a request of an open page."""
        visit = self._visits.get(ask.page)
        if visit is None:
            return _refused("closed")
        url = normalise(ask.url)
        if (reason := self._refusal(visit, ask)) or url is None:
            self._count(f"krowl/browser/refused_count/{reason or 'url'}")
            return _refused(reason or "url")
        if url in visit.urls:
            return _answer_of(visit.response)
        if (kept := self._kept.get(ask, url)) is not None:
            self._count("krowl/browser/kept_count")
            return kept
        self._count("krowl/browser/request_count")
        try:
            response = await self._fetch(_request_of(visit, ask, url), visit.url)
        except Exception as error:  # noqa: BLE001 - whatever it is, the browser gets an answer
            return self._failed(error)
        answer = _answer_of(response)
        self._kept.keep(ask, url, answer)
        return answer

    def _refusal(self, visit: Visit, ask: BrowserRequest) -> str:
        """Return why a request is not made, in one word; "" if it may be."""
        if ask.value(b"upgrade"):
            return "websocket"
        if ask.method not in {"GET", "HEAD"} or ask.value(b"content-length") not in {b"", b"0"}:
            return "method"
        if ask.value(b"sec-purpose") or ask.value(b"purpose"):
            return "prefetch"
        visit.asked += 1
        return "count" if visit.asked > REQUESTS_MAX else ""

    def _failed(self, error: Exception) -> BrowserResponse:
        is_refused = isinstance(error, IgnoreRequest)
        kind = failure_kind(error)
        # Which rule has refused it is counted in krowl/frontier/dropped_count.
        kind = "refused" if is_refused and kind == "error" else kind
        self._count(f"krowl/browser/failed_count/{kind}")
        if is_refused:
            return _refused(kind)
        is_late = isinstance(error, DownloadTimeoutError)
        return BrowserResponse(
            HTTPStatus.GATEWAY_TIMEOUT if is_late else HTTPStatus.BAD_GATEWAY, []
        )


def _refused(reason: str) -> BrowserResponse:
    # The rest of a request that is refused may be its body.
    return BrowserResponse(
        HTTPStatus.FORBIDDEN, [(b"x-krowl-refused", reason.encode())], is_last=True
    )


def _request_of(visit: Visit, ask: BrowserRequest, url: str) -> Request:
    meta = {**_META, "verbatim_url": True}
    headers: dict[bytes, list[bytes]] = {}
    for name, value in ask.headers:
        if name not in _NOT_SENT and not name.startswith(b"sec-ch-"):
            headers.setdefault(name, []).append(value)
    if "proxy" in visit.request.meta:
        meta["proxy"] = visit.request.meta["proxy"]
        if credentials := visit.request.headers.getlist("Proxy-Authorization"):
            headers[b"proxy-authorization"] = credentials
    return Request(url, method=ask.method, headers=headers, meta=meta, dont_filter=True)


def _answer_of(response: Response) -> BrowserResponse:
    headers: Headers = [
        (name, value)
        for name, values in response.headers.items()
        if name.lower() not in _NOT_HANDED_ON
        for value in values
    ]
    headers = [(name.lower(), value) for name, value in headers]
    return BrowserResponse(response.status, headers, response.body)
