"""Chromium, driven by scrapy-playwright, with no way out but the proxy."""

from __future__ import annotations

import copy
import logging
import os
from typing import TYPE_CHECKING, Any

from krowlspider.errors import SettingsError, need

if TYPE_CHECKING:
    from scrapy.core.downloader.handlers.base import BaseDownloadHandler
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

# No name is looked up, no datagram is sent, nothing is asked for that no page has.
FLAGS = (
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--disable-quic",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--dns-prefetch-disable",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--no-pings",
)
# Settings of scrapy-playwright by which pages would go round the proxy, or share a context.
_NOT_TAKEN = {
    "PLAYWRIGHT_BROWSER_PROVIDER": "Chromium is started by scrapy-playwright itself",
    "PLAYWRIGHT_CDP_URL": "a browser that runs elsewhere does not use the crawl's proxy",
    "PLAYWRIGHT_CONNECT_URL": "a browser that runs elsewhere does not use the crawl's proxy",
    "PLAYWRIGHT_CONTEXTS": "each page has a context of its own, see playwright_context_kwargs",
}
# Flags by which Chromium would go round the proxy.
_ROUND_THE_PROXY = ("--proxy-", "--no-proxy", "--host-rules", "--host-resolver-rules")
# Of ``playwright_context_kwargs`` of a request: the crawl sets these, or they would keep what one
# page has got for the next.
NOT_OF_PAGES = frozenset(
    {
        *("proxy", "service_workers", "accept_downloads", "ignore_https_errors", "user_agent"),
        *("user_data_dir", "record_har_path", "record_video_dir"),
    }
)


def _is_new(record: logging.LogRecord) -> bool:
    """Return whether scrapy-playwright logs more than a page that failed, which has a line of ours
    already, without the traceback of its driver."""
    return not str(record.msg).startswith("Closing page due to failed request")


def faults(settings: BaseSettings) -> list[str]:
    """Return what is wrong with the settings of scrapy-playwright, each with the way out."""
    found = [
        f"{name} is set, and KROWL_BROWSER is True: {why}. Remove it"
        for name, why in _NOT_TAKEN.items()
        if settings.get(name)
    ]
    kind = settings.get("PLAYWRIGHT_BROWSER_TYPE") or "chromium"
    if kind != "chromium":
        found.append(f"PLAYWRIGHT_BROWSER_TYPE is {kind!r}: KROWL_BROWSER drives only chromium")
    try:
        options = settings.getdict("PLAYWRIGHT_LAUNCH_OPTIONS")
    except (TypeError, ValueError):
        given = settings.get("PLAYWRIGHT_LAUNCH_OPTIONS")
        return [*found, f"PLAYWRIGHT_LAUNCH_OPTIONS={given!r} is no dict: give a JSON object"]
    args = options.get("args", [])
    if not isinstance(args, list | tuple) or not all(isinstance(arg, str) for arg in args):
        found.append(f"args of PLAYWRIGHT_LAUNCH_OPTIONS is {args!r}: give a list of strings")
    else:
        found += [
            f"PLAYWRIGHT_LAUNCH_OPTIONS has {arg!r}: the browser fetches through the crawl alone."
            " Remove it"
            for arg in args
            if arg.startswith(_ROUND_THE_PROXY)
        ]
    if "proxy" in options:
        found.append(
            "PLAYWRIGHT_LAUNCH_OPTIONS has a proxy: the browser fetches through the crawl. Remove"
            " it, and name a proxy in the environment or in the meta of a request"
        )
    return found


def handler_of(crawler: Crawler, *, pin: str, timeout: float) -> BaseDownloadHandler:
    """Return scrapy-playwright's download handler. Call `send_through` before its first request.

    ``pin`` is as in `Certificates`, ``timeout`` the seconds of a navigation.

    :raises KrowlError: scrapy-playwright is not installed
    :raises SettingsError: its settings cannot be used
    """
    if found := faults(crawler.settings):
        raise SettingsError(found[0])
    module = need("scrapy_playwright.handler", "browser")
    logging.getLogger("scrapy-playwright").addFilter(_is_new)
    settings = crawler.settings.copy()
    settings.frozen = False
    own = settings.getdict("PLAYWRIGHT_LAUNCH_OPTIONS")
    options = {
        # Chromium's sandbox does not run as root.
        "chromium_sandbox": os.geteuid() != 0,
        **own,
        "args": [*own.get("args", ()), *FLAGS, f"--ignore-certificate-errors-spki-list={pin}"],
    }
    settings.setdict(
        {
            "PLAYWRIGHT_LAUNCH_OPTIONS": options,
            "PLAYWRIGHT_DEFAULT_NAVIGATION_TIMEOUT": timeout * 1000,
            # The proxy decides about headers.
            "PLAYWRIGHT_PROCESS_REQUEST_HEADERS": None,
        },
        priority="cmdline",
    )
    wired = copy.copy(crawler)
    wired.settings = settings
    handler: BaseDownloadHandler = module.ScrapyPlaywrightDownloadHandler.from_crawler(wired)
    return handler


def send_through(handler: Any, port: int) -> None:
    """Let a browser that is not started yet fetch through the proxy at a port of 127.0.0.1.

    What belongs to no page has no credentials there.
    """
    handler.config.launch_options["proxy"] = proxy_at(port)


def proxy_at(port: int) -> dict[str, str]:
    """Return the proxy of a browser or a context. Loopback goes through it too."""
    return {"server": f"http://127.0.0.1:{port}", "bypass": "<-loopback>"}


def context_of(
    given: dict[str, Any], *, port: int, name: str, password: str, agent: str
) -> dict[str, Any]:
    """Return the arguments of a page's browser context; ``given`` are those of its request."""
    return {
        **{key: value for key, value in given.items() if key not in NOT_OF_PAGES},
        "proxy": {**proxy_at(port), "username": name, "password": password},
        "service_workers": "block",
        "accept_downloads": False,
        "user_agent": agent,
    }
