"""Measure what it costs to find the requisites of a page, beside its links."""

from __future__ import annotations

import timeit
from functools import partial

from krowlspider.urls.page.links import read_page, reading_plan

URL = "https://www.example.org/guide/page"
# Timed calls of each kind, in turns. The figures are the least: other work can only add to them.
_CALLS = 2000
_TEXT = "a page of ordinary text with some words in a row that have no meaning at all " * 5


def html() -> bytes:
    """Return a page of 37 kB with 77 links and 20 requisites."""
    head = [
        *(f'<link rel="stylesheet" href="/css/{n}.css">' for n in range(3)),
        '<link rel="icon" href="/icon.png">',
        *(f'<script src="/js/{n}.js"></script>' for n in range(4)),
    ]
    body = [
        f'<div class="part"><p id="p{n}">{_TEXT}<a href="/guide/{n}?part=1">more</a></p></div>'
        for n in range(77)
    ]
    pictures = [f'<img src="/images/{n}.jpg" alt="">' for n in range(12)]
    parts = ["<!DOCTYPE html><title>Page</title>", *head, *body, *pictures]
    return "\n".join(parts).encode()


def measure() -> dict[str, float]:
    """Return the bytes of the page, and the microseconds to read it without and with requisites."""
    body = html()
    plans = {
        name: reading_plan("krowlspider", follow_nofollow=False, described=False, requisites=wanted)
        for name, wanted in (("links", False), ("links and requisites", True))
    }
    calls: dict[str, list[float]] = {name: [] for name in plans}
    for _ in range(_CALLS):
        for name, plan in plans.items():
            read = partial(read_page, body, URL, None, plan)
            calls[name].append(timeit.timeit(read, number=1))
    figures: dict[str, float] = {"bytes": len(body)}
    figures |= {name: round(min(took) * 1e6, 1) for name, took in calls.items()}
    page = read_page(body, URL, None, plans["links and requisites"])
    assert page.requisites is not None
    figures["requisites"] = len(page.requisites.found)
    return figures


def table(figures: dict[str, float]) -> str:
    cost = figures["links and requisites"] - figures["links"]
    return (
        f"A page of {figures['bytes']:,} bytes: {figures['links']} µs for its links,"
        f" {cost:.1f} more for {figures['requisites']} requisites"
    )
