"""pywb itself answers the same queries about the same index, and says the same."""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.cdx.archives import Archives
from krowlspider.cdx.capture import CaptureLine
from tests.cdx.asking import SAMPLES, lines_of
from tests.replay.venv import tool

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

QUERIES = 1500
URLS = (
    *("http://iana.org/", "www.iana.org/_css/2013.1/screen.css", "http://iana.org/domains/"),
    *("http://iana.org/_css/2013.1/fonts/opensans-bold.ttf", "https://www.iana.org/dnssec"),
    *(
        "http://example.com",
        "http://example.com/?example=1",
        "http://example.com*",
        "iana.org/_js*",
    ),
    *("*.iana.org", "http://iana.org/domains/root/db", "http://nowhere.test/", "iana.org/_css/*"),
    *("http://httpbin.org/post?__wb_method=POST&foo=bar&test=abc", "*.org", "http://iana.org/?"),
)
DATES = (
    "2013",
    "20140126",
    "20140126200700",
    "201401262008",
    "201402",
    "20140127171238",
    "20200101",
)
FILTERS = (
    *("mime:html", "!mime:revisit", "=status:200", "!=status:200", "~mime:text/.*", "~url:.*css$"),
    *("!~url:.*ttf", "screen", "~urlkey:org,iana\\)/[a-d]+", "offset:33", "blah:1", "=blah:"),
)
SOMETIMES: dict[str, tuple[Any, ...]] = {
    "matchType": ("exact", "prefix", "host", "domain"),
    "from": DATES,
    "to": DATES,
    "limit": (1, 2, 3, 10, 100),
    "reverse": ("true", "false", "1"),
    "sort": ("reverse",),
    "closest": DATES,
    "collapseTime": (4, 8, 10, 11, 14),
    "resolveRevisits": ("true", "0"),
}


def queries() -> Iterator[dict[str, Any]]:
    chance = random.Random(11)
    for _ in range(QUERIES):
        query: dict[str, Any] = {"url": chance.choice(URLS)}
        for name, values in SOMETIMES.items():
            if chance.random() < 0.25:
                query[name] = str(chance.choice(values))
        if chance.random() < 0.4:
            query["filter"] = chance.sample(FILTERS, chance.randint(1, 2))
        # A wildcard stands for a match type; with both, the host has a star.
        if "*" in query["url"]:
            query.pop("matchType", None)
        yield query


def test_pywb_answers_the_same(tmp_path: Path):
    index = tmp_path / "all.cdxj"
    texts = b"".join(path.read_bytes() for path in SAMPLES.iterdir()).decode()
    # All lines of an index name its file. To a revisit without a status, pywb gives none.
    named = (
        re.sub(r'"filename": "[^"]*"', '"filename": "all.warc.gz"', text)
        if '"status"' in text
        else re.sub(r'"filename": "[^"]*"', '"status": "-", "filename": "all.warc.gz"', text)
        for text in texts.splitlines(keepends=True)
    )
    index.write_text("".join(sorted(named)))
    asked = [*queries()]
    done = subprocess.run(
        [tool("python"), Path(__file__).with_name("cdxops.py"), index],
        input=json.dumps(asked).encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    answers, archives, counted = json.loads(done.stdout), Archives([tmp_path]), 0
    for query, expected in zip(asked, answers, strict=True):
        given = {name: value for name, value in query.items() if name != "filter"}
        found = lines_of(archives, filters=query.get("filter", ()), **given)
        assert [*map(values_of, found)] == [*map(values_of, expected)], query
        counted += bool(found)
    # Most queries find something.
    assert counted > QUERIES / 2


def values_of(line: str) -> dict[str, Any]:
    """The values of a line, in which pywb may have empty ones."""
    return {name: value for name, value in CaptureLine(line.encode()).values.items() if value}
