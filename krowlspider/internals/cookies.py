"""Scrapy's cookies middleware: the public suffixes that it uses, and bounds for its cookies.

Only a crawl with cookies imports this.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from scrapy.downloadermiddlewares import cookies
from scrapy.http.cookies import CookieJar, potential_domain_matches
from scrapy.utils.httpobj import urlparse_cached
from tldextract import TLDExtract

if TYPE_CHECKING:
    from collections.abc import Iterable
    from http.cookiejar import Cookie

    from scrapy import Request

# Most characters of a cookie, with its attributes. Most cookies of a domain, as in browsers, and
# most characters of all of these: servers take heads of 8 to 16 KiB.
_PER_COOKIE = 4096
_PER_DOMAIN = 180
_CHARACTERS = 16_384
# Most domains with cookies in a jar.
_DOMAINS = 10_000


def mend_cookies(middlewares: Iterable[object]) -> None:
    """Make Scrapy's cookies middleware use the bundled list of public suffixes, and give its jars
    bounds.

    By default it fetches the list from the network, which blocks the event loop.
    """
    cookies._split_domain = TLDExtract(
        cache_dir=None, suffix_list_urls=(), include_psl_private_domains=True
    )
    for each in middlewares:
        if isinstance(each, cookies.CookiesMiddleware) and isinstance(each.jars, defaultdict):
            each.jars.default_factory = BoundedJar


class BoundedJar(CookieJar):
    """Keeps the newest cookies of each domain, and only the domains that were used last."""

    def set_cookie_if_ok(self, cookie: Cookie, request: Request) -> None:
        if _characters(cookie) <= _PER_COOKIE:
            super().set_cookie_if_ok(cookie, request)
        if not self._use(cookie.domain):
            return
        kept = self._cookies[cookie.domain]
        while not _fits(kept):
            path, names = next(iter(kept.items()))
            if names:
                del names[next(iter(names))]
            else:
                # Its cookies have expired.
                del kept[path]
        if len(self._cookies) > _DOMAINS:
            del self._cookies[next(iter(self._cookies))]

    def add_cookie_header(self, request: Request) -> None:
        super().add_cookie_header(request)
        if b"Cookie" in request.headers:
            for domain in potential_domain_matches(urlparse_cached(request).hostname or ""):
                self._use(domain)

    def _use(self, domain: str) -> bool:
        """Move a domain behind all others; return whether it has cookies."""
        if (kept := self._cookies.pop(domain, None)) is not None:
            self._cookies[domain] = kept
        return kept is not None


def _fits(kept: dict[str, dict[str, Cookie]]) -> bool:
    """Return whether the cookies of a domain, by path and name, are within the bounds."""
    found = [cookie for names in kept.values() for cookie in names.values()]
    if max(len(kept), len(found)) > _PER_DOMAIN:
        return False
    return sum(map(len, kept)) + sum(map(_characters, found)) <= _CHARACTERS


def _characters(cookie: Cookie) -> int:
    """Return how many characters a cookie takes, with its attributes."""
    own = vars(cookie)
    texts = (*own.values(), *own["_rest"], *own["_rest"].values())
    return sum(len(text) for text in texts if isinstance(text, str))
