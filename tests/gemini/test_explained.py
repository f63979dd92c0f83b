"""What explains a gemini URL that nobody can crawl."""

from __future__ import annotations

import pytest

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
