"""Whole crawls of capsules: their certificates, and answers that may be cut."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from tests.gemini.answers import Answer, page
from tests.gemini.capsules import Capsules, Paths
from tests.gemini.certificates import Identity
from tests.support.archived import Records, valid_records
from tests.support.crawling import Crawl, write_seeds

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = {"KROWL_GEMINI": "1", "KROWL_GEMINI_DELAY_MIN": "0.05", "RETRY_TIMES": 1}
COUNT = "krowl/gemini/certificate_count/"
REASON = "krowl/frontier/dropped_count/tls_certificate"


def crawl_of(tmp_path: Path, *seeds: str, **settings: Any) -> Crawl:
    arguments = {"seeds": write_seeds(tmp_path / "seeds.txt", seeds)} if seeds else {}
    return Crawl(tmp_path / "job", arguments=arguments, settings={**SETTINGS, **settings})


def certificates(records: Records) -> Records:
    return Records(
        each
        for each in records.of_kind("metadata")
        if each.all("Content-Type") == ["application/x-pem-file"]
    )


@pytest.mark.slow
def test_a_changed_certificate_is_refused_and_counted(tmp_path: Path) -> None:
    """After a kill too. Nothing is asked of its server; the policy accepts it."""
    web = Paths(
        {"/": page("=> /a\n"), "/a": page("# A\n"), "/b": page("# B\n"), "/c": page("# C\n")}
    )
    web.answers["/hangs"] = Answer(close="never")
    with Capsules(web) as capsules:
        killed = crawl_of(tmp_path, capsules.url(), capsules.url("/hangs")).start()
        killed.wait_until(lambda: capsules.asked()[capsules.url("/a")] > 0)
        # A commit makes the record of the first certificate whole.
        warc = tmp_path / "job" / "warc"
        killed.wait_until(lambda: any(path.stat().st_size for path in warc.iterdir()))
        killed.kill()
        web.identities["capsule.test"] = Identity(generation=1)
        asked = capsules.asked()
        refused = crawl_of(tmp_path, capsules.url("/b"), capsules.url("/b", "other.test")).run()
        assert capsules.asked() - asked == {
            capsules.url("/b", "other.test"): 1,
            capsules.url("/robots.txt", "other.test"): 1,
        }
        accepted = crawl_of(tmp_path, capsules.url("/c"), KROWL_GEMINI_CERTIFICATES="accept").run()
    assert refused.stats[COUNT + "refused"] == refused.stats[REASON] >= 1
    assert refused.stats[COUNT + "first"] == 1
    assert "krowl/fetch/failed_count/tls_certificate" in refused.stats
    assert accepted.stats[COUNT + "accepted"] == 1
    assert COUNT + "refused" not in accepted.stats
    assert capsules.url("/c") in {item["url"] for item in accepted.items}
    found = certificates(valid_records(warc))
    assert len(found) == 3
    for each in found:
        text = each.block.decode().split("-----")
        assert text[1] == "BEGIN CERTIFICATE"
        assert base64.b64decode(text[2]).startswith(b"\x30\x82")


@pytest.mark.slow
def test_an_answer_without_close_notify_is_accepted_at_once(tmp_path: Path) -> None:
    """Its links are followed. Item, archive and stats tell that it may be cut."""
    answers = {
        "/": Answer(body=b"# Home\n=> /b\n", close="cut"),
        "/b": Answer(body=b"# B\n", close="cut"),
    }
    with Capsules(Paths(answers)) as capsules:
        crawl = crawl_of(tmp_path, capsules.url()).run()
        asked = capsules.asked()
    assert asked == {capsules.url(path): 1 for path in ("/robots.txt", "/", "/b")}
    assert {item["title"]: item["truncated"] for item in crawl.items} == dict.fromkeys(
        ("Home", "B"), "disconnect"
    )
    assert crawl.stats["krowl/fetch/truncated_count"] == 2
    assert crawl.stats["krowl/frontier/done_count"] == 2
    records = valid_records(tmp_path / "job" / "warc")
    kept = records.of_kind("response").about(capsules.url("/b")).only
    assert kept["WARC-Truncated"] == "disconnect"
    assert kept.block == b"20 text/gemini\r\n# B\n"
    # One server, one certificate.
    assert len(certificates(records)) == 1
