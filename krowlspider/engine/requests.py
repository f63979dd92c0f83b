"""Redirects that the broad spider follows, and parts of requests and spiders that have no
effect.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.request import getproxies

from krowlspider.politeness.gemini import REDIRECTS_MAX
from krowlspider.urls.canonical import normalise
from krowlspider.urls.gemini import accepts_gemini, is_gemini
from krowlspider.urls.page.headers import PAYMENTS, escape_octets

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request, Spider
    from scrapy.http import Response
    from scrapy.settings import BaseSettings


class Redirects:
    """Follows REDIRECT_MAX_TIMES redirects in a row, and none without REDIRECT_ENABLED. In Gemini
    five at most; those between Gemini and the web only with KROWL_GEMINI_REDIRECTS=any.

    A redirect back to a URL in its own chain is a loop, unless cookies may change the next answer.
    """

    def __init__(self, settings: BaseSettings):
        follows = settings.getbool("REDIRECT_ENABLED")
        self._most = settings.getint("REDIRECT_MAX_TIMES") if follows else 0
        self._crosses = settings["KROWL_GEMINI_REDIRECTS"] == "any"
        self._has_cookies = settings.getbool("COOKIES_ENABLED")

    def target(
        self, response: Response, location: bytes, drop: Callable[[str], object]
    ) -> tuple[str, tuple[str, ...]] | None:
        """Return the target of a redirect, and the URLs whose redirects lead there.

        If it is not followed, call ``drop`` with the reason and return None.
        """
        meta = response.meta
        chain = (*meta.get("redirect_urls", ()), response.url)
        url = normalise(escape_octets(location), response.url)
        if url is None:
            drop("url")
        elif is_gemini(url) != is_gemini(response.url) and not self._crosses:
            drop("redirect_scheme")
        elif url in chain and not self._uses_cookies(response):
            drop("redirect_loop")
        elif max(len(chain), meta.get("redirect_times", 0) + 1) > self._most_for(response.url):
            drop("redirects")
        else:
            return url, chain
        return None

    def _most_for(self, url: str) -> int:
        return min(self._most, REDIRECTS_MAX) if is_gemini(url) else self._most

    def _uses_cookies(self, response: Response) -> bool:
        """Return whether a response sets a cookie, or its request had one."""
        if not self._has_cookies:
            return False
        assert response.request is not None
        return b"Set-Cookie" in response.headers or b"Cookie" in response.request.headers


logger = logging.getLogger(__name__)

# Most schemes of URLs that cannot be fetched that are named in the log.
_SCHEMES = 10
_AGENT = "every request has the User-Agent of the setting USER_AGENT, which names who crawls"
# By key of a request's meta: the value that asks for what is done anyway, and the reason.
_META: dict[str, tuple[bool, str]] = {
    "download_slot": (
        False,
        "a request waits for its host; give the host a delay in DOWNLOAD_SLOTS",
    ),
    "bindaddress": (False, "the operating system chooses the address to connect from"),
    "dont_obey_robotstxt": (
        False,
        "robots.txt holds for every request, unless the setting ROBOTSTXT_OBEY is False",
    ),
    "download_fail_on_dataloss": (True, "a request whose body is cut off fails"),
    "autothrottle_dont_adjust_delay": (
        False,
        "the delay of a host follows all its answers; give the host a delay in DOWNLOAD_SLOTS",
    ),
}
_ATTRIBUTES = {
    "user_agent": _AGENT,
    "download_timeout": "set DOWNLOAD_TIMEOUT, or download_timeout in a request's meta",
}


def warn_of_proxies() -> None:
    """Name the proxies of the environment that the broad spider does not use.

    By the names of their variables, because their values may hold passwords.
    """
    proxies = getproxies()
    if names := [f"{scheme}_proxy" for scheme in ("http", "https") if scheme in proxies]:
        logger.warning(
            "%s in the environment has no effect: the broad spider fetches directly; a spider that"
            " is derived from it uses the proxies of the environment",
            " and ".join(names),
        )


class RequestWarnings:
    """Logs once what has no effect in a request, and what does it instead.

    ``cookies`` is whether cookies are sent, ``agent`` the User-Agent of every request.
    """

    def __init__(self, *, cookies: bool, agent: str):
        self._meta = set(_META)
        self._cookies = not cookies
        self._agent = agent
        self._agents = self._payments = True
        # Schemes of URLs that cannot be fetched, already named.
        self._schemes: set[str] = set()

    def of_spider(self, spider: Spider) -> None:
        """Name the attributes of a spider that have no effect."""
        for name, why in _ATTRIBUTES.items():
            if (value := getattr(spider, name, None)) not in {None, self._agent}:
                logger.warning(
                    "%s=%.100r of the spider %s has no effect: %s", name, value, spider.name, why
                )

    def of_meta(self, request: Request) -> None:
        """Name the keys of a request's meta that have no effect."""
        if self._meta.isdisjoint(request.meta):
            return
        for name in self._meta.intersection(request.meta):
            done_anyway, why = _META[name]
            if bool(request.meta[name]) is done_anyway:
                continue
            self._meta.discard(name)
            logger.warning(
                "%s=%.100r in the meta of %s has no effect, here and in further requests: %s",
                name,
                request.meta[name],
                request,
                why,
            )

    def of_cookies(self, request: Request) -> None:
        """Name a request with cookies if they are off."""
        if self._cookies and (request.cookies or "cookiejar" in request.meta):
            self._cookies = False
            logger.warning(
                "%s has cookies, and cookies are off: to send and keep them, set COOKIES_ENABLED"
                " to True",
                request,
            )

    def of_headers(self, request: Request) -> None:
        """Name a request with a User-Agent of its own, or that offers to pay, from a spider or a
        middleware."""
        if self._payments and not PAYMENTS.isdisjoint(request.headers):
            self._payments = False
            logger.warning(
                "%s offers to pay by one of the headers %s: they are not sent, here and in further"
                " requests",
                request,
                ", ".join(sorted(name.decode() for name in PAYMENTS)),
            )
        agent = request.headers.get(b"User-Agent")
        # Handlers of other projects are given the project's own, and a retry of a request has it.
        if self._agents and agent is not None and agent.decode("latin-1") != self._agent:
            self._agents = False
            logger.warning(
                "The User-Agent header of %s is not sent, here and in further requests: %s",
                request,
                _AGENT,
            )

    def of_scheme(self, request: Request) -> None:
        """Name a request whose URL cannot be fetched, the first of each scheme."""
        scheme = request.url.partition(":")[0]
        if scheme in self._schemes or len(self._schemes) == _SCHEMES:
            return
        self._schemes.add(scheme)
        if scheme in {"http", "https"}:
            why = "it is not valid, too long, or has a user name (set HTTPAUTH_USER in its place)"
        elif scheme == "data":
            why = "data: URLs cannot be used in a cluster"
        elif scheme == "gemini" and accepts_gemini():
            why = "it is not valid, no GET, has a user name, or more than 1,024 bytes"
        elif scheme == "gemini":
            why = "set KROWL_GEMINI=True to crawl gemini URLs"
        else:
            why = "only http, https and data URLs are fetched"
        logger.error("%s is dropped: %s. Further ones are counted as dropped/url", request, why)
