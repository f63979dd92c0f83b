"""The size limit of a request holds for its body as received, and again as decoded."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from tests.support.rawweb import HTML, Raw, answer
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedRawWeb

if TYPE_CHECKING:
    from pathlib import Path

BODY = bytes(range(256)) * 40


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_a_limit_holds_for_the_decoded_body_too_and_0_is_none(tmp_path: Path, coding: str) -> None:
    body = gzip.compress(BODY, mtime=0) if coding == "gzip" else BODY
    assert coding == "identity" or len(body) < 1000
    lines = (HTML, b"Content-Encoding: " + coding.encode())
    with SimulatedRawWeb({"/": Raw(answer(*lines, body=body))}) as web:
        crawl = SimulatedCrawl(
            tmp_path / "job",
            spider="limiting",
            arguments={"url": web.url("sized.test", "/"), "limits": "0,1000,20000"},
            settings={"SPIDER_MODULES": "tests.support.spiders", "DOWNLOAD_MAXSIZE": 5000},
        ).run()
    assert {item["limit"]: item["bytes"] for item in crawl.items} == {
        0: len(BODY),
        1000: 0,
        20000: len(BODY),
    }
