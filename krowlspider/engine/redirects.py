"""Where redirects lead that the broad spider meets, and which of them it follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.urls.canonical import normalise
from krowlspider.urls.page.headers import escape_octets

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.http import Response
    from scrapy.settings import BaseSettings


class Redirects:
    """Follows REDIRECT_MAX_TIMES redirects in a row, and none without REDIRECT_ENABLED.

    A redirect back to a URL in its own chain is a loop, unless cookies may change the next answer.
    """

    def __init__(self, settings: BaseSettings):
        follows = settings.getbool("REDIRECT_ENABLED")
        self._most = settings.getint("REDIRECT_MAX_TIMES") if follows else 0
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
        elif url in chain and not self._uses_cookies(response):
            drop("redirect_loop")
        elif max(len(chain), meta.get("redirect_times", 0) + 1) > self._most:
            drop("redirects")
        else:
            return url, chain
        return None

    def _uses_cookies(self, response: Response) -> bool:
        """Return whether a response sets a cookie, or its request had one."""
        if not self._has_cookies:
            return False
        assert response.request is not None
        return b"Set-Cookie" in response.headers or b"Cookie" in response.request.headers
