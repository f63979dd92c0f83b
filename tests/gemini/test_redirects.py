"""Redirects of Gemini that are followed: five in a row, within Gemini unless set."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.settings import Settings

from krowlspider.engine.requests import Redirects

BASE = "gemini://a.test/"
SETTINGS = {
    "REDIRECT_ENABLED": True,
    "REDIRECT_MAX_TIMES": 20,
    "KROWL_GEMINI_REDIRECTS": "same",
    "COOKIES_ENABLED": False,
}

pytestmark = pytest.mark.usefixtures("gemini")


def followed(url: str, location: str, before: int = 0, **settings: Any) -> str | None:
    """Return where a redirect leads, or why it is dropped; ``before`` others led to ``url``."""
    chain = tuple(f"{url}{number}" for number in range(before))
    request = Request(url, meta={"redirect_urls": chain, "redirect_times": before})
    drops: list[str] = []
    redirects = Redirects(Settings({**SETTINGS, **settings}))
    target = redirects.target(Response(url, request=request), location.encode(), drops.append)
    return drops[0] if target is None else target[0]


@pytest.mark.parametrize(
    ("url", "before", "end"),
    [
        (BASE, 4, "/next"),
        (BASE, 5, "redirects"),
        ("http://a.test/", 5, "/next"),
        ("http://a.test/", 20, "redirects"),
    ],
)
def test_gemini_has_five_redirects_in_a_row(url: str, before: int, end: str):
    assert followed(url, "/next", before) in {end, f"{url[:-1]}{end}"}


def test_fewer_redirects_may_be_set():
    assert followed(BASE, "/next", 2, REDIRECT_MAX_TIMES=2) == "redirects"
    assert followed(BASE, "/next", REDIRECT_ENABLED=False) == "redirects"


@pytest.mark.parametrize(("url", "target"), [(BASE, "http://b.test/"), ("http://b.test/", BASE)])
def test_redirects_cross_with_the_setting_alone(url: str, target: str):
    assert followed(url, target) == "redirect_scheme"
    assert followed(url, target, KROWL_GEMINI_REDIRECTS="any") == target
