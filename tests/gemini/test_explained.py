"""What is said of a gemini URL that cannot be crawled."""

from __future__ import annotations

import pytest

from krowlspider.cluster.transport.message import BadMessage, check_url
from krowlspider.job.explain import _way_out
from krowlspider.urls.gemini import accept_gemini


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
