"""What a search index has of the pages of capsules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from krowlspider.frontier.store.store import LevelStore
from krowlspider.search.builder import Builder
from krowlspider.search.gone import DEAD
from tests.archive.captures import STARTED
from tests.catalogue.warcs import archived
from tests.gemini.answers import Answer, page, redirect, refusal
from tests.gemini.archived import capture
from tests.search.webs import put_row, stored, urls

if TYPE_CHECKING:
    from pathlib import Path

A, B = "gemini://a.test/", "gemini://b.test:1966/"

pytestmark = pytest.mark.usefixtures("gemini")


def build(folder: Path, *answers: tuple[str, Answer], minute: int = 0) -> Path:
    made = [replace(capture(answer, url=url), started=STARTED + 60 * minute)
            for url, answer in answers]  # fmt: skip
    archived(folder / "warc", made)
    builder = Builder(folder / "index", [folder / "warc"], heap=15_000_000)
    builder.run()
    builder.close()
    return folder / "index"


def test_a_page_of_a_capsule_has_its_fields_and_anchors(tmp_path: Path):
    linking = page(f"# Links\n=> {A} granite\n```\n=> {A} marble\n```\n")
    index = build(tmp_path, (A, page("# Stones\nWords of it\n")), (B, linking))
    found = stored(index).documents
    fields = {name: values[0] for name, values in found[A].items()}
    expected = {"host": "a.test:1965", "domain": "a.test", "scheme": "gemini", "title": "Stones"}
    assert {**expected, "mime": "text/gemini", "linking_hosts": 1}.items() <= fields.items()
    assert found[B]["host"] == ["b.test:1966"]
    assert urls(index, "anchors", "granite") == {A}
    assert urls(index, "anchors", "marble") == set()


@pytest.mark.parametrize("answer", [redirect("/new", status=31), refusal(51), refusal(52, "gone")])
def test_a_page_that_is_gone_is_removed_until_it_is_back(tmp_path: Path, answer: Answer):
    there = page("# Here\n")
    build(tmp_path, (A, there), (B, page("# There\n")))
    assert stored(build(tmp_path, (A, answer), minute=1)).documents.keys() == {B}
    assert stored(build(tmp_path, (A, there), minute=2)).documents.keys() == {A, B}


@pytest.mark.parametrize(
    "answer", [redirect("/new", status=30), refusal(41), refusal(44, "9"), refusal(10, "?")]
)
def test_an_answer_that_may_pass_removes_nothing(tmp_path: Path, answer: Answer):
    build(tmp_path, (A, page("# Here\n")))
    assert stored(build(tmp_path, (A, answer), minute=1)).documents.keys() == {A}


def test_pages_of_a_dead_capsule_go(tmp_path: Path):
    """As of a server of the web: it has not answered for 30 days of daily tries."""
    jobdir = tmp_path / "job"
    made = [replace(capture(page(f"# Of {url}\n"), url=url), started=STARTED) for url in (A, B)]
    archived(jobdir / "warc", made)
    store = LevelStore(jobdir / "frontier", create=True)
    batch = store.batch()
    for url, errors in ((A, DEAD), (B, DEAD - 1)):
        put_row(batch, url, errors, day=0 if url == A else 20)
    batch.write()
    store.close()
    builder = Builder(tmp_path / "index", [jobdir], heap=15_000_000, jobdirs=[jobdir])
    builder.run()
    builder.close()
    assert stored(tmp_path / "index").documents.keys() == {B}
