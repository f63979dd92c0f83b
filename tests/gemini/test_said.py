"""What is said of a gemini URL that cannot be crawled."""

from __future__ import annotations

import pytest
from scrapy.settings import BaseSettings

from krowlspider.cluster.transport.message import BadMessage, check_url
from krowlspider.job.explain import _way_out
from krowlspider.job.start_log import _of_gemini
from krowlspider.urls.gemini import accept_gemini
from krowlspider.urls.seeds import BadSeed, parse_seed


@pytest.mark.usefixtures("gemini")
@pytest.mark.parametrize("text", ["gemini://u@a.test/", "GEMINI://a.test:99999/", "gemini:///x"])
def test_the_way_out_is_not_the_setting_that_is_on(text: str) -> None:
    assert "KROWL_GEMINI" not in _way_out(text)
    assert "without user name, of at most 1,024 bytes" in _way_out(text)
    accept_gemini(is_on=False)
    assert "set KROWL_GEMINI=True" in _way_out(text)
    assert "KROWL_GEMINI" not in _way_out("ftp://a.test/")


def test_a_node_without_gemini_says_why_it_takes_no_such_url() -> None:
    with pytest.raises(BadMessage, match="set KROWL_GEMINI=True"):
        check_url("gemini://a.test/")


@pytest.mark.usefixtures("gemini")
def test_a_node_with_gemini_takes_its_urls() -> None:
    assert check_url("gemini://A.test:1965/x") == "gemini://a.test/x"
    with pytest.raises(BadMessage, match="no http or https URL"):
        check_url("gemini://u@a.test/")


def test_the_start_says_the_delay_of_gemini_where_it_is_on() -> None:
    settings = {"KROWL_GEMINI": "1", "KROWL_GEMINI_DELAY_MIN": "1.5"}
    assert _of_gemini(BaseSettings(settings)) == ", to a Gemini server 1.5 s at least"
    assert _of_gemini(BaseSettings(settings | {"KROWL_GEMINI": "0"})) == ""


@pytest.mark.usefixtures("gemini")
def test_a_seed_that_is_too_long_is_said_to_be() -> None:
    with pytest.raises(BadSeed, match=r"or of more than 1,024 bytes: 'GEMINI://a.test/xxx"):
        parse_seed(b"GEMINI://a.test/" + b"x" * 1009)
    with pytest.raises(BadSeed, match="user name: 'http://"):
        parse_seed(b"http://u@a.test/")
    assert parse_seed(b"gemini://a.test/" + b"x" * 1008)
