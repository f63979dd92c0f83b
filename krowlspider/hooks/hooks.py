"""The class whose methods a user overrides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krowlspider.hooks.words import HookError

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from scrapy import Request
    from scrapy.http import Response

    from krowlspider.hooks.words import Answer, Delay, Enqueued, Failed, Link, Redact, Url

# Hooks that must be plain functions: where they are called nothing can wait.
SYNC = (
    *("compute_delay", "disallowed", "enqueued", "error", "filter", "log", "priority"),
    *("recrawl_weight", "scope"),
)
# Hooks that may be coroutines.
ASYNC = (
    *("archive", "end", "fetch", "fetched_robots", "request_get", "request_robots", "start"),
    *("visit", "visited"),
)


class Hooks:
    """Override what you need. None is the answer that leaves the crawl as it is.

    A method that is not overridden is never called. The crawl makes one object, by ``from_crawler``
    if the class has that, else without arguments. One that raises or takes too long is counted, and
    its default holds; docs/hooks.md says when it is cut off.
    """

    _enqueue: Callable[[Iterable[str], Any], Enqueued] | None = None

    # --- the crawl ---

    def start(
        self, seeds: Sequence[str]
    ) -> Iterable[str] | Mapping[str, Any] | Awaitable[Any] | None:
        """Prepare, before the first request. Return the seeds to crawl in place of ``seeds``, or a
        mapping of them to their states. None: all of them, as given."""

    def end(self, reason: str) -> Awaitable[None] | None:
        """The crawl ends: ``finished``, or as Scrapy's close reasons. Nothing is fetched any
        more."""

    def error(self, failed: Failed) -> None:
        """A try of a request has failed, or reading a page raised."""

    def log(self, record: logging.LogRecord) -> None:
        """A line is logged that LOG_LEVEL lets through. It may come in any thread."""

    def enqueue(self, urls: str | Iterable[str], state: Any = None) -> Enqueued:
        """Put URLs in from outside, from any thread: do not override this. `filter` sees each.

        They are seeds, domains or URLs. ``await`` what this returns, or its ``result()`` in another
        thread: then they are on disk.

        :raises HookError: the crawl does not run, a URL is none, the state is too long, or too many
            URLs wait to be taken
        """
        if self._enqueue is None:
            raise HookError("the crawl does not run: call enqueue() from start() on, before end()")
        return self._enqueue([urls] if isinstance(urls, str) else urls, state)

    # --- hosts ---

    def compute_delay(self, delay: Delay) -> float | None:
        """Return the seconds until the next request of a host. It is never below
        ``delay.least``, and an hour at most."""

    def request_robots(self, url: Url) -> bytes | str | Awaitable[bytes | str | None] | None:
        """Return the content of a robots.txt, and it is not fetched; "" allows all."""

    def fetched_robots(self, url: Url, response: Response) -> Awaitable[None] | None:
        """A robots.txt was fetched, whatever its status is."""

    def disallowed(self, url: Url) -> None:
        """robots.txt does not allow a URL, which is dropped."""

    # --- links ---

    def scope(self, link: Url, reason: str | None) -> bool | None:
        """Return whether a new link is in scope. ``reason`` is the rule of the spider that refuses
        it, None if none does."""

    def filter(self, link: Url, is_known: bool) -> bool | None:
        """Return whether to queue a URL. True for a known one fetches it again. ``link.state`` may
        be set."""

    def priority(self, link: Url) -> int | None:
        """Return from -999 to 999 for a new link: higher ones come first at their host."""

    def enqueued(self, url: Url) -> None:
        """A URL is in the queue, on the node that owns it."""

    # --- pages ---

    def request_get(self, url: Url, head: Response) -> bool | Awaitable[bool | None] | None:
        """Return whether GET follows the answer to HEAD (KROWL_HEAD)."""

    def fetch(self, url: Url, request: Request) -> Response | Awaitable[Response | None] | None:
        """Return the response for a URL, in place of the crawl's own exchange. It is not
        archived."""

    def archive(
        self, url: Url, answer: Answer
    ) -> bool | Redact | Awaitable[bool | Redact | None] | None:
        """Return KEEP, SKIP, or the header fields to `Redact`, before an answer is archived."""

    def visit(
        self, url: Url, response: Response
    ) -> Iterable[str | Link] | Awaitable[Iterable[str | Link] | None] | None:
        """Return the links of a page in place of those that the spider finds."""

    def visited(self, url: Url, links: Sequence[str]) -> Awaitable[None] | None:
        """The links of a page are queued."""

    def recrawl_weight(self, url: str) -> float | None:
        """Return how much a page is worth in the schedule of KROWL_RECRAWL=continuous, above 0:
        1 is usual. It is called in another thread."""


def overridden(hooks: Hooks) -> list[str]:
    """Return the names of the hooks that an object overrides.

    :raises HookError: it overrides none, or `Hooks.enqueue`
    """
    kind = type(hooks)
    if kind.enqueue is not Hooks.enqueue:
        raise HookError("overrides enqueue(), which the crawl gives: remove it")
    found = [name for name in (*SYNC, *ASYNC) if getattr(kind, name) is not getattr(Hooks, name)]
    if not found:
        raise HookError(f"overrides none of the hooks: {', '.join(sorted((*SYNC, *ASYNC)))}")
    return found
