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


def lengths(folder: Path, coding: str, limits: str, **settings: int) -> dict[float, int]:
    """Crawl a page with each limit; return the bytes of its body by limit, 0 for none."""
    body = gzip.compress(BODY, mtime=0) if coding == "gzip" else BODY
    assert coding == "identity" or len(body) < 1000
    lines = (HTML, b"Content-Encoding: " + coding.encode())
    with SimulatedRawWeb({"/": Raw(answer(*lines, body=body))}) as web:
        crawl = SimulatedCrawl(
            folder / "job",
            spider="limiting",
            arguments={"url": web.url("sized.test", "/"), "limits": limits},
            settings={"SPIDER_MODULES": "tests.support.spiders", **settings},
        ).run()
    return {item["limit"]: item["bytes"] for item in crawl.items}


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_a_limit_holds_for_the_decoded_body_too_and_0_is_none(tmp_path: Path, coding: str) -> None:
    found = lengths(tmp_path, coding, "[0, 1000, 20000, 20000.5]", DOWNLOAD_MAXSIZE=5000)
    assert found == {0: len(BODY), 1000: 0, 20000: len(BODY), 20000.5: len(BODY)}


@pytest.mark.parametrize(("less", "taken"), [(0, len(BODY)), (4, 0)])
def test_without_a_limit_a_decoded_body_has_a_quarter_of_the_memory(
    tmp_path: Path, less: int, taken: int
) -> None:
    memory = 4 * len(BODY) - less
    found = lengths(tmp_path, "gzip", "[0]", DOWNLOAD_MAXSIZE=5000, KROWL_MEMORY_LIMIT=memory)
    assert found == {0: taken}
