"""A request of an ordinary spider has the seed of the page that it comes from."""

from __future__ import annotations

import pytest
from scrapy import Request, Spider
from scrapy.exceptions import NotConfigured
from scrapy.http import Response
from scrapy.utils.test import get_crawler

from krowlspider.middlewares.seeds import SeedMiddleware

SEED = "https://seed.test/"


def test_requests_of_a_callback_have_the_seed_of_the_page():
    middleware = SeedMiddleware(get_crawler(Spider, {"KROWL_PAGES": True, "KROWL_RECRAWL": "off"}))
    page = Response("https://a.test/", request=Request("https://a.test/"))
    page.request.meta["krowl_seed"] = SEED
    request = middleware.get_processed_request(Request("https://a.test/b"), page)
    assert request.meta["krowl_seed"] == SEED
    assert "krowl_seed" not in middleware.get_processed_request(Request(SEED), None).meta


def test_without_rows_it_is_not_there():
    with pytest.raises(NotConfigured):
        SeedMiddleware(get_crawler(Spider, {"KROWL_PAGES": False, "KROWL_RECRAWL": "off"}))
