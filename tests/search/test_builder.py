"""What an index has of the captures in WARC files."""

from __future__ import annotations

from datetime import UTC, datetime
from errno import ENOSPC
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from krowlspider.errors import KrowlError
from krowlspider.frontier.pages.row import PageRow
from krowlspider.frontier.store.schema import PAGES
from krowlspider.frontier.store.store import LevelStore
from krowlspider.recrawl.gone import Absence, PageState
from krowlspider.search import builder as builder_module
from krowlspider.search.builder import Builder
from krowlspider.search.gone import DEAD
from krowlspider.search.link_store import LinkStore
from krowlspider.search.query import parse
from krowlspider.search.schema import FORM, LINKS, STATE, page_id
from krowlspider.search.searcher import Searcher
from krowlspider.search.watch import NoWatch
from krowlspider.urls.canonical import host_of
from krowlspider.urls.gemini import accept_gemini
from tests.archive.captures import STARTED
from tests.catalogue.warcs import archived, fetch
from tests.gemini import answers
from tests.gemini.archived import capture
from tests.search.webs import found, page, put_row, stored, text, urls

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from krowlspider.search.builder import Segments

_HEAP = 15_000_000
CAPSULE = "gemini://a.test/"
A, B = "https://a.test/", "https://b.test/"


def build(folder: Path, *files: list[Any]) -> Path:
    """Write WARC files, update the index of all that are there, and return its folder."""
    if files:
        archived(folder / "job" / "warc", *files)
    update(folder / "index", folder / "job")
    return folder / "index"


def update(index: Path, *sources: Path) -> Counter[str]:
    builder = Builder(index, sources, heap=_HEAP, jobdirs=sources)
    try:
        builder.run()
    finally:
        builder.close()
    return builder.counts


def documents(index: Path) -> dict[str, dict[str, Any]]:
    return stored(index).documents


def minute(number: int) -> datetime:
    return datetime.fromtimestamp(int(STARTED) + 60 * number, UTC)


def test_a_page_has_its_fields(tmp_path: Path):
    index = build(tmp_path, [found(A + "x?b=2&a=1", 1)])
    [(url, fields)] = documents(index).items()
    assert url == A + "x?b=2&a=1"
    place = fields.pop("place")[0]
    assert (place.jobdir, place.file.partition("/")[0]) == (0, "warc")
    expected = {
        "id": page_id(url), "url": url, "host": "a.test", "domain": "a.test", "scheme": "https",
        "lang": "en", "mime": "text/html", "title": "Title 1", "size": len(page(1)),
        "linking_hosts": 0, "fetched": minute(0), "first_fetched": minute(0), "changed": minute(0),
    }  # fmt: skip
    assert expected.items() <= {name: values[0] for name, values in fields.items()}.items()


def test_text_is_found_as_it_is_and_in_other_forms(tmp_path: Path):
    index = build(tmp_path, [found(A, 1, extra="Crème running")])
    assert urls(index, "body", "creme") == urls(index, "body", "running") == {A}
    assert urls(index, "body", "run") == set()
    found_by = Searcher(index).search(parse("run"), snippets=False)
    assert [each.url for each in found_by.results] == [A]
    assert urls(index, "headings", "heading") == urls(index, "title", "1") == {A}


def test_scripts_without_spaces_are_pairs_of_characters(tmp_path: Path):
    text = (
        "<title>東京</title><p>明日は雨が降るでしょう。Unicode と今日の天気はどうですか。".encode()
    )
    index = build(tmp_path, [fetch(A, text * 3, mime=b"text/html; charset=utf-8")])
    assert urls(index, "body_cjk", "明日") == urls(index, "body_cjk", "東京") == {A}
    assert urls(index, "body", "unicode") == {A}
    assert urls(index, "body", "明日は雨が降るでしょう") == set()


def test_plain_text_has_its_first_line_as_title(tmp_path: Path):
    body = "\n  Read me\n\nAbout the river and the garden of the forest."
    index = build(tmp_path, [fetch(A, body.encode(), mime=b"text/plain")])
    assert documents(index)[A]["title"] == ["Read me"]
    assert urls(index, "body", "river") == {A}


def test_other_types_have_no_document(tmp_path: Path):
    index = build(tmp_path, [fetch(A, b"\x89PNG", mime=b"image/png"), found(B, 1)])
    assert documents(index).keys() == {B}


def test_a_changed_page_is_replaced(tmp_path: Path):
    build(tmp_path, [found(A, 1)])
    index = build(tmp_path, [found(A, 2, 5)])
    assert documents(index)[A]["title"] == ["Title 2"]
    assert urls(index, "body", "number1") == set()
    dates = [documents(index)[A][name][0] for name in ("first_fetched", "fetched", "changed")]
    assert dates == [minute(0), minute(5), minute(5)]


def test_another_number_is_no_change_of_the_text(tmp_path: Path):
    build(tmp_path, [found(A, 1, extra="Seen 17 times")])
    index = build(tmp_path, [found(A, 1, 5, extra="Seen 18 times")])
    dates = [documents(index)[A][name][0] for name in ("fetched", "changed")]
    assert dates == [minute(5), minute(0)]


def test_the_same_bytes_again_change_nothing(tmp_path: Path):
    """Neither as a revisit, nor as a response in another archive."""
    index = build(tmp_path, [found(A, 1)])
    archived(tmp_path / "job" / "warc", [found(A, 1, 5)])
    archived(tmp_path / "other", [found(A, 1, 9)])
    counts = update(index, tmp_path / "job", tmp_path / "other")
    assert (counts["documents"], counts["files"]) == (0, 2)
    assert update(index, tmp_path / "job", tmp_path / "other")["files"] == 0
    assert documents(index)[A]["fetched"] == [minute(0)]
    assert update(index, tmp_path / "job", tmp_path / "other")["files"] == 0


@pytest.mark.parametrize("status", [b"404 Not Found", b"410 Gone", b"301 Moved Permanently"])
def test_a_page_that_is_gone_is_removed_until_it_is_back(tmp_path: Path, status: bytes):
    build(tmp_path, [found(A, 1, links={B: "to b"}), found(B, 2)])
    index = build(tmp_path, [fetch(A, b"no", status=status, minute=5)])
    assert documents(index).keys() == {B}
    assert urls(index, "anchors", "b") == set()
    # The payload is known: a revisit.
    build(tmp_path, [found(A, 1, 9, links={B: "to b"})])
    assert documents(index).keys() == {A, B}
    assert urls(index, "anchors", "b") == {B}


def test_pages_that_share_an_error_page_are_gone(tmp_path: Path):
    """The second answer is a revisit of the first one."""
    gone = [fetch(url, b"no such page", status=b"404 Not Found", minute=5) for url in (A, B)]
    index = build(tmp_path, [found(A, 1), found(B, 2), *gone])
    assert documents(index) == {}


def test_an_error_that_may_pass_changes_nothing(tmp_path: Path):
    build(tmp_path, [found(A, 1)])
    index = build(tmp_path, [fetch(A, b"oops", status=b"503 Unavailable", minute=5)])
    assert documents(index)[A]["title"] == ["Title 1"]


def test_an_archive_that_comes_late_is_older(tmp_path: Path):
    archived(tmp_path / "early", [found(A, 1)])
    index = build(tmp_path, [found(A, 2, 5)])
    update(index, tmp_path / "early")
    fields = documents(index)[A]
    assert (fields["title"], fields["first_fetched"]) == (["Title 2"], [minute(0)])


def test_rows_say_which_pages_are_gone(tmp_path: Path):
    """A capture that came later than their answer says more."""

    def row(url: str, minute: int, answers: int) -> None:
        absence = Absence(PageState.MISSING, answers, STARTED)
        made = PageRow(url, 200, int(STARTED), STARTED + 60 * minute, absence=absence)
        batch = store.batch()
        host = host_of(url)
        batch.put(PAGES + host.encode() + b"\0" + url[-2:].encode() * 4, made.encode(host))
        batch.write()

    index = build(tmp_path, [found(A + name, n, 5) for n, name in enumerate(("x", "y", "z"))])
    store = LevelStore(tmp_path / "job" / "frontier", create=True)
    row(A + "x", 7, 2)
    row(A + "y", 3, 2)
    row(A + "z", 7, 1)
    # A crawl that runs has them open.
    assert update(index, tmp_path / "job")["gone by rows"] == 0
    store.close()
    assert update(index, tmp_path / "job")["gone by rows"] == 1
    assert documents(index).keys() == {A + "y", A + "z"}
    assert update(index, tmp_path / "job")["gone by rows"] == 0
    build(tmp_path, [found(A + "x", 9, 8)])
    assert documents(index).keys() == {A + "x", A + "y", A + "z"}


def test_pages_of_a_dead_host_go_until_it_answers(tmp_path: Path):
    """It has not answered for 30 days, in which it was tried once a day."""
    pages = {"a": "http://a.test/1", "b": "http://b.test/1"}
    index = build(tmp_path, [found(url, n, 5) for n, url in enumerate(pages.values())])
    store = LevelStore(tmp_path / "job" / "frontier", create=True)
    batch = store.batch()
    put_row(batch, pages["a"], DEAD)
    put_row(batch, pages["b"], DEAD - 1, day=20)
    batch.write()
    store.close()
    assert update(index, tmp_path / "job")["gone by rows"] == 1
    assert documents(index).keys() == {pages["b"]}
    build(tmp_path, [found(pages["a"], 9, 8)])
    assert documents(index).keys() == {pages["a"], pages["b"]}


@pytest.mark.parametrize("back", [0, 39])
def test_no_page_goes_because_this_machine_was_offline(tmp_path: Path, back: int):
    """Nobody has answered between the tries, whether one has since then, or none."""
    pages = {"a": "http://a.test/1", "b": "http://b.test/1"}
    index = build(tmp_path, [found(url, n, 5) for n, url in enumerate(pages.values())])
    store = LevelStore(tmp_path / "job" / "frontier", create=True)
    batch = store.batch()
    put_row(batch, pages["a"], DEAD)
    put_row(batch, pages["b"], 0 if back else DEAD, day=back)
    batch.write()
    store.close()
    assert update(index, tmp_path / "job")["gone by rows"] == 0
    assert documents(index).keys() == {*pages.values()}


def test_a_host_that_asks_for_payments_is_not_dead(tmp_path: Path):
    """Its prices count as failures: it is tried once a day. But it answers."""
    pages = {"a": "http://a.test/1", "b": "http://b.test/1"}
    index = build(tmp_path, [found(url, n, 5) for n, url in enumerate(pages.values())])
    store = LevelStore(tmp_path / "job" / "frontier", create=True)
    batch = store.batch()
    put_row(batch, pages["a"], DEAD, day=38)
    put_row(batch, pages["b"], 0, day=20)
    batch.write()
    store.close()
    assert update(index, tmp_path / "job")["gone by rows"] == 0
    assert documents(index).keys() == {*pages.values()}


def test_one_copy_is_in_the_index(tmp_path: Path):
    same, again = A + "same", A + "again"
    made = [found(A, 1), found(same, 1, 1), found(again, 1, 2)]
    index = build(tmp_path, made)
    assert documents(index).keys() == {A}
    build(tmp_path, [fetch(A, b"", status=b"404 Not Found", minute=5)])
    assert documents(index).keys() == {same}
    build(tmp_path, [found(same, 2, 7)])
    assert documents(index).keys() == {same, again}


@pytest.mark.parametrize(("sentences", "is_copy"), [(2, True), (12, False)])
def test_near_copies_are_in_the_index_and_one_is_shown(
    tmp_path: Path, sentences: int, is_copy: bool
):
    more = ". ".join(f"Sentence {n} is about part {n + 1}" for n in range(sentences))
    index = build(tmp_path, [found(A, 1), found(B, 1, 1, extra=more)])
    assert documents(index).keys() == {A, B}
    for asked in ("story number1", "lang:en"):
        shown = Searcher(index).search(parse(asked), snippets=False)
        assert (len(shown.results), shown.total) == ((1, 1) if is_copy else (2, 2))


def test_pages_without_a_word_are_no_copies(tmp_path: Path):
    index = build(tmp_path, [fetch(A, b"<p>+++"), fetch(B, b"<p>---", minute=1)])
    assert documents(index).keys() == {A, B}


@pytest.mark.parametrize(
    ("head", "header"),
    [
        ("<meta name=robots content='noindex, follow'>", b""),
        ("", b"X-Robots-Tag: noindex"),
        ("", b"Content-Usage: train-ai=y, search=n"),
        ("", b"Content-Signal: search=no, ai-train=yes"),
    ],
)
def test_a_page_that_refuses_is_left_out(tmp_path: Path, head: str, header: bytes):
    headers = [header] if header else []
    index = build(tmp_path, [fetch(A, page(1, head=head), *headers), found(B, 2)])
    assert documents(index).keys() == {B}


def test_signals_about_other_uses_refuse_nothing(tmp_path: Path):
    made = fetch(A, page(1, head="<meta name=robots content=noai>"), b"Content-Usage: train-ai=n")
    assert documents(build(tmp_path, [made])).keys() == {A}


def test_pages_follow_the_robots_txt_of_their_host(tmp_path: Path):
    def robots(text: bytes, minute: int) -> Any:
        return fetch(A + "robots.txt", text, mime=b"text/plain", minute=minute)

    refusing = b"User-agent: *\nContent-Usage: /private search=n\nAllow: /\n"
    made = [found(A + "private", 1), found(A + "public", 2), found(B + "private", 3)]
    index = build(tmp_path, made)
    assert len(documents(index)) == 3
    build(tmp_path, [robots(refusing, 5)])
    assert documents(index).keys() == {A + "public", B + "private"}
    build(tmp_path, [robots(b"User-agent: *\nAllow: /\n", 7)])
    assert len(documents(index)) == 3
    # An archive that comes late has an older one.
    archived(tmp_path / "early", [robots(refusing, 6)])
    update(index, tmp_path / "job", tmp_path / "early")
    assert len(documents(index)) == 3


@pytest.fixture
def gemini() -> Iterator[None]:
    """Gemini URLs are URLs, as in `scrapy index`."""
    accept_gemini(is_on=True)
    yield
    accept_gemini(is_on=False)


def told(path: str, content: str, minute: int = 0, kind: str = "text/gemini") -> Any:
    """Return the capture of a text of a capsule."""
    made = capture(answers.page(content, kind=kind), url=CAPSULE + path)
    return replace(made, started=STARTED + 60 * minute)


@pytest.mark.usefixtures("gemini")
def test_a_capsule_has_documents_until_they_are_gone(tmp_path: Path):
    """Copies are found too, and entries of a feed give their titles to what they name."""
    feed = "# Log\n=> /a 2026-11-01 The granite quarry\n=> /b 2026-11-02 Tides\n" + text(7)
    made = [told("", feed), told("a", f"# One\n{text(1)}"), told("b", f"# Two\n{text(2)}")]
    index = build(tmp_path, [*made, told("copy", f"# One\n{text(1)}", 1)])
    fields = documents(index)
    assert fields.keys() == {CAPSULE, CAPSULE + "a", CAPSULE + "b"}
    about = [fields[CAPSULE + "a"][name] for name in ("title", "host", "domain", "scheme", "mime")]
    assert about == [["One"], ["a.test:1965"], ["a.test"], ["gemini"], ["text/gemini"]]
    assert urls(index, "anchors", "granite") == {CAPSULE + "a"}
    gone = capture(answers.refusal(52, "gone"), url=CAPSULE + "a")
    build(tmp_path, [replace(gone, started=STARTED + 300)])
    assert documents(index).keys() == {CAPSULE, CAPSULE + "b", CAPSULE + "copy"}


@pytest.mark.usefixtures("gemini")
@pytest.mark.parametrize(
    ("status", "days", "is_kept"),
    [(59, 29, True), (59, 31, False), (60, 31, False), (40, 31, True)],
)
def test_a_capsule_page_that_fails_for_a_month_is_gone(
    tmp_path: Path, status: int, days: int, is_kept: bool
):
    """As in TLGS. A temporary failure says nothing, and a good answer brings the page back."""
    failing = replace(
        capture(answers.refusal(status, "no"), url=CAPSULE), started=STARTED + 86_400 * days
    )
    index = build(tmp_path, [told("", f"# One\n{text(1)}"), failing])
    assert (CAPSULE in documents(index)) is is_kept
    build(tmp_path, [told("", f"# One\n{text(2)}", 1440 * 40)])
    assert CAPSULE in documents(index)


@pytest.mark.usefixtures("gemini")
def test_a_capsule_refuses_indexers_in_its_robots_txt(tmp_path: Path):
    """So what was indexed before goes, though it is not fetched again."""
    made = [told(path, f"# Page\n{text(n)}") for n, path in enumerate(("private/a", "public"), 1)]
    index = build(tmp_path, made)
    whole = {CAPSULE + "private/a", CAPSULE + "public"}
    assert documents(index).keys() == whole
    lines = "User-agent: researcher\nDisallow: /public\n\nUser-agent: indexer\nDisallow: /private\n"
    build(tmp_path, [told("robots.txt", lines, 5, "text/plain")])
    assert documents(index).keys() == {CAPSULE + "public"}
    build(tmp_path, [told("robots.txt", "User-agent: *\nDisallow: /p*c\n", 6, "text/plain")])
    assert documents(index).keys() == {CAPSULE + "private/a"}
    build(tmp_path, [told("robots.txt", "User-agent: *\nDisallow:\n", 7, "text/plain")])
    assert documents(index).keys() == whole


def test_anchors_of_other_hosts_come_first(tmp_path: Path):
    links = {A: "Home of A"}
    made = [found(A, 1), found(A + "about", 2, links={A: "back"})]
    made += [
        found(f"https://c{n}.test/{p}", 10 * n + p, links=links)
        for n in range(3, 6)
        for p in (1, 2)
    ]
    build(tmp_path, made)
    store = LinkStore(tmp_path / "index" / LINKS)
    about = store.anchors(A)
    store.close()
    assert about.texts == ["Home of A"] * 3 + ["back"]
    assert about.hosts == 3
    assert documents(tmp_path / "index")[A]["linking_hosts"] == [3]


def test_new_anchors_reach_a_document_and_go_with_the_link(tmp_path: Path):
    build(tmp_path, [found(A, 1)])
    index = build(tmp_path, [found(B, 2, 3, links={A: "granite"})])
    assert urls(index, "anchors", "granite") == {A}
    assert update(index, tmp_path / "job")["documents"] == 0
    build(tmp_path, [found(B, 2, 5)])
    assert urls(index, "anchors", "granite") == set()


def test_links_that_are_not_vouched_for_do_not_count(tmp_path: Path):
    body = page(1).replace(b"</body>", b"<a rel='ugc nofollow' href='%b'>granite</a>" % A.encode())
    index = build(tmp_path, [fetch(B, body), found(A, 2)])
    assert urls(index, "anchors", "granite") == set()


def test_a_followed_crawl_updates_anchors_as_hosts_double(tmp_path: Path):
    def linking(number: int) -> list[Any]:
        return [
            found(f"https://c{number}.test/", number + 10, number, links={A: f"anchor{number}"})
        ]

    source, counted = tmp_path / "job", []
    builder = Builder(tmp_path / "index", [source], heap=_HEAP)
    for number in range(9):
        archived(source, linking(number) if number else [found(A, 1)])
        for path, file in builder.waiting():
            builder.take(path, file)
        builder.settle(is_last=False)
        counted.append(builder.counts["anchors"])
    builder.settle()
    builder.close()
    assert counted == [0, 0, 1, 1, 2, 2, 2, 2, 3], counted
    assert documents(tmp_path / "index")[A]["linking_hosts"] == [8]


@pytest.mark.parametrize(("ends", "parts"), [(0, [8]), (1, [2, 2, 2, 2]), (2, [1] * 8)])
def test_less_is_made_again_after_pages_ended_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: int, parts: list[int]
):
    monkeypatch.setattr(builder_module, "_PART_MIN", 1)
    watch, made = NoWatch(), []
    watch.ends = ends
    archived(tmp_path / "job" / "warc", [found(f"{A}{at}", at) for at in range(8)])
    builder = Builder(tmp_path / "index", [tmp_path / "job"], watch=watch, part=8)
    monkeypatch.setattr(builder.ledger, "done", partial(record_done, made, builder.ledger.done))
    builder.run()
    builder.close()
    assert made == parts


def record_done(made: list[int], done: Callable[[list[bytes]], None], marks: list[bytes]) -> None:
    made.append(len(marks))
    done(marks)


def test_a_second_builder_is_refused(tmp_path: Path):
    index = build(tmp_path, [found(A, 1, links={B: "b"})])
    builder = Builder(index, [tmp_path / "job"], heap=_HEAP)
    with pytest.raises(KrowlError, match="Is another scrapy index at work there"):
        Builder(index, [tmp_path / "job"])
    # Readers have a copy meanwhile.
    copy = LinkStore.of_copy(index / LINKS)
    assert copy.outgoing(A) == [B]
    assert copy.incoming(B) == [(A, "b")]
    copy.close()
    builder.close()
    assert {each.name for each in index.iterdir()} == {"forms", "links", "state.json", "tantivy"}


@pytest.mark.parametrize("form", [FORM - 1, 99])
def test_an_index_of_another_form_is_refused(tmp_path: Path, form: int):
    index = build(tmp_path, [found(A, 1)])
    (index / STATE).write_text(f'{{"form": {form}, "jobdirs": []}}')
    said = f"has form {form}, and this version makes form {FORM}: remove the folder and run"
    with pytest.raises(KrowlError, match=said):
        update(index, tmp_path / "job")


def test_a_failed_commit_loses_no_document(tmp_path: Path):
    """Marks stay until the segments are durable, so the next run makes the same documents."""

    class Full:
        """Segments on a disk that is full at the commit."""

        def __init__(self, segments: Segments):
            self.add, self.remove, self.close = segments.add, segments.remove, segments.close

        def commit(self) -> None:
            raise OSError(ENOSPC, "No space left on device")

    build(tmp_path, [found(A, 1)])
    archived(tmp_path / "job" / "warc", [found(A, 2, 5), found(B, 3, 5, extra="Walking")])
    builder = Builder(tmp_path / "index", [tmp_path / "job"], heap=_HEAP)
    builder.segments = Full(builder.segments)  # type: ignore[assignment]
    with pytest.raises(OSError, match="No space left"):
        builder.run()
    builder.close()
    made = stored(tmp_path / "index")
    assert made.documents[A]["title"] == ["Title 1"]
    assert "en/walk/walking" in made.forms, "forms come before the documents that have them"
    assert update(tmp_path / "index", tmp_path / "job")["documents"] == 2
    titles = {url: made["title"] for url, made in documents(tmp_path / "index").items()}
    assert titles == {A: ["Title 2"], B: ["Title 3"]}


def test_a_file_that_is_gone_leaves_its_documents(tmp_path: Path):
    index = build(tmp_path, [found(A, 1)])
    for path in (tmp_path / "job" / "warc").iterdir():
        path.unlink()
    archived(tmp_path / "other", [found(B, 2, 5, links={A: "granite"})])
    update(index, tmp_path / "job", tmp_path / "other")
    assert documents(index).keys() == {A, B}
