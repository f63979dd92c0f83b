"""Traps: endless answers, made up for any URL that is asked for. Rules name them by `trap`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from tests.mockweb.reply import Reply, gzipped

if TYPE_CHECKING:
    from collections.abc import Iterable

Trap = Callable[[str, str, int, int], Reply]
"""Makes an answer from host, target, number of earlier requests, and the server's port."""

SESSION_PAGES = 10
SUBDOMAINS_A_PAGE = 5
HUGE_ROBOTS = 10 * 1024 * 1024
_HTML = [("Content-Type", "text/html; charset=utf-8")]
_TEXT = [("Content-Type", "text/plain; charset=utf-8")]
_MONTH = re.compile(r"(\d{4})-(\d\d)")


def _page(hrefs: Iterable[str], title: str) -> Reply:
    links = "".join(f"<p><a href={href}>{href}</a></p>" for href in hrefs)
    return Reply(200, _HTML, f"<title>{title}</title>{links}".encode())


def calendar(_host: str, target: str, _nth: int, _port: int) -> Reply:
    """`/month?m=2031-05` links to the month before and the month after."""
    found = _MONTH.search(target)
    months = int(found[1]) * 12 + int(found[2]) - 1 if found else 0
    near = (
        f"/month?m={month // 12:04d}-{month % 12 + 1:02d}" for month in (months - 1, months + 1)
    )
    return _page(near, target)


def chain(_host: str, target: str, _nth: int, _port: int) -> Reply:
    """`/7` links to `/8`, and so on."""
    return _page([f"/{int(target.strip('/') or 0) + 1}"], target)


def sessions(_host: str, target: str, nth: int, _port: int) -> Reply:
    """SESSION_PAGES pages link to each other, each time with a new session id, in path or query."""
    session = hashlib.md5(f"{target} {nth}".encode(), usedforsecurity=False).hexdigest()
    pages = range(SESSION_PAGES)
    hrefs = [f"/page{n};jsessionid={session.upper()}" for n in pages]
    return _page(
        [*hrefs, *(f"/page{n}?PHPSESSID={session}" for n in pages)], target.partition(";")[0]
    )


def subdomains(host: str, _target: str, _nth: int, port: int) -> Reply:
    """Each host of the domain links to new hosts."""
    domain = ".".join(host.split(".")[-2:])
    names = (
        hashlib.md5(f"{host} {n}".encode(), usedforsecurity=False).hexdigest()[:12]
        for n in range(SUBDOMAINS_A_PAGE)
    )
    return _page((f"http://{name}.{domain}:{port}/" for name in names), host)


def maze(_host: str, target: str, _nth: int, _port: int) -> Reply:
    """`/3` redirects to `/4`, and so on."""
    return Reply(302, [*_HTML, ("Location", f"/{int(target.strip('/') or 0) + 1}")])


def hosts_maze(host: str, target: str, _nth: int, port: int) -> Reply:
    """`3.some.test` redirects to `4.some.test`, and so on. None has a robots.txt."""
    number, _, domain = host.partition(".")
    if target == "/robots.txt":
        return Reply(404, _TEXT)
    return Reply(302, [*_HTML, ("Location", f"http://{int(number) + 1}.{domain}:{port}/")])


def deeper(_host: str, target: str, _nth: int, _port: int) -> Reply:
    """A wrong relative link: each page links to a path with one more segment."""
    return _page(["more/"], target)


@cache
def _huge_robots() -> bytes:
    def filled(size: int) -> bytes:
        return b"# what nobody reads\n" * (size // 20)

    first = b"User-agent: *\nDisallow: /early/\n" + filled(600 * 1024)
    return first + b"Disallow: /late/\n" + filled(HUGE_ROBOTS - len(first))


def huge_robots(_host: str, _target: str, _nth: int, _port: int) -> Reply:
    """A robots.txt of 10 MB that disallows `/early/` at its start and `/late/` after 600 KiB."""
    return Reply(200, _TEXT, _huge_robots())


@cache
def _bomb() -> bytes:
    return gzipped(bytes(200 * 1024 * 1024))


def bomb(_host: str, _target: str, _nth: int, _port: int) -> Reply:
    """200 KB that become 200 MB when decoded."""
    return Reply(200, [*_HTML, ("Content-Encoding", "gzip")], _bomb())


TRAPS: dict[str, Trap] = {
    trap.__name__: trap
    for trap in (
        calendar,
        chain,
        sessions,
        subdomains,
        maze,
        hosts_maze,
        deeper,
        huge_robots,
        bomb,
    )
}
