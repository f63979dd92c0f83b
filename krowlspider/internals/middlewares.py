"""Scrapy's downloader middlewares, with less work for each response."""

from __future__ import annotations

from functools import cached_property
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.core.downloader.middleware import DownloaderMiddlewareManager
from scrapy.exceptions import _InvalidOutput
from scrapy.http import Response

if TYPE_CHECKING:
    from collections.abc import Callable


class DownloaderMiddlewares(DownloaderMiddlewareManager):
    """Calls ``process_response`` directly as long as all of them are coroutine functions.

    Scrapy looks at each result to learn whether it can be awaited.
    """

    @cached_property
    def _coroutines(self) -> tuple[Callable[..., Any], ...]:
        """Return all methods ``process_response``; none if one of them is no coroutine function."""
        methods = tuple(each for each in self.methods["process_response"] if each is not None)
        if all(
            iscoroutinefunction(each) and each not in self._mw_methods_requiring_spider
            for each in methods
        ):
            return methods
        return ()

    async def _process_response(
        self, response: Response | Request, request: Request
    ) -> Response | Request:
        methods = self._coroutines
        if not methods or response is None:
            return await super()._process_response(response, request)
        for method in methods:
            if isinstance(response, Request):
                break
            response = await method(request=request, response=response)
            if not isinstance(response, (Response, Request)):
                raise _InvalidOutput(
                    f"Middleware {method.__qualname__} must return Response or Request, got"
                    f" {type(response)}"
                )
        return response
