"""Searches of small indexes: what is found, in which order, and what a bad index says."""

from __future__ import annotations

import json
import shutil
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from krowlspider.errors import KrowlError
from krowlspider.search.opened import SearchError
from krowlspider.search.query import parse
from krowlspider.search.schema import (
    CJK,
    FOLDED,
    RANKS,
    SEGMENTS,
    STATE,
    CapturePlace,
    analysers,
    tantivy,
)
from krowlspider.search.searcher import RANKED_MAX, Searcher, SearchResults
from krowlspider.search.snippets import joined
from tests.archive.captures import Odd, capture, written
from tests.catalogue.warcs import archived, fetch
from tests.search.indexes import Page, index

if TYPE_CHECKING:
    from pathlib import Path

PAGES = [
    Page("https://a.example.org/", "Searching the web", "How search engines find running dogs"),
    Page("https://b.test/x", "The web", "We search everything on the web, dogs run", size=20_000),
    Page(
        "gemini://cap.test/z",
        "日本語のページ",
        "これは日本語のテキストです。検索エンジン",
        lang="ja",
        mime="text/gemini",
        fetched=datetime(2025, 3, 1, tzinfo=UTC),
    ),
    Page("https://a.example.org/o.txt", "Other", "nothing Größe café", mime="text/plain"),
    Page("http://my-host.de.test:8080/", "Häuser", "Das Haus und die Häuser", lang="de"),
]
SHORT = {
    "https://a.example.org/": "a", "https://b.test/x": "b", "gemini://cap.test/z": "z",
    "https://a.example.org/o.txt": "o", "http://my-host.de.test:8080/": "d",
}  # fmt: skip


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory) -> Searcher:
    return Searcher(index(tmp_path_factory.mktemp("index"), PAGES))


def urls(found: SearchResults) -> list[str]:
    return [each.url for each in found.results]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("search", "ab"),
        ("searching web", "ab"),
        ('"search everything"', "b"),
        ('"everything search"', ""),
        ("everyth*", "b"),
        ("search -everything", "a"),
        ("dogs OR nothing", "abo"),
        ("runs", "ab"),
        ("haus", "d"),
        ("hauser", "d"),
        ("GRÖSSE OR größe", "o"),
        ("cafe", "o"),
        ("検索", "z"),
        ("日本語 ページ", "z"),
        ("語日", ""),
        ("intitle:web", "ab"),
        ("intitle:dogs", ""),
        ("site:example.org", "ao"),
        ("site:a.example.org dogs", "a"),
        ("site:org", ""),
        ("host:cap.test", "z"),
        ("host:cap.test:1965", "z"),
        ("host:my-host.de.test", "d"),
        ("host:my-host.de.test:8080", "d"),
        ("host:my-host.de.test:80", ""),
        ("host:de.test", ""),
        ("site:my-host.de.test", "d"),
        ("host:[::1]", ""),
        ("site:de.test", "d"),
        ("-site:example.org -lang:ja -lang:de web", "b"),
        ("type:text/", "abdoz"),
        ("type:gemini", "z"),
        ("type:text", "o"),
        ("type:html type:gemini", "abdz"),
        ("scheme:gemini", "z"),
        ("lang:ja OR lang:de", "dz"),
        ("size:>10k", "b"),
        ("size:<20000 search", "a"),
        ("size:..20000 -size:<20000", "b"),
        ("date:2026-11", "abdo"),
        ("date:..2025", "z"),
        ("since:2026-12", ""),
        ("date:2026-11-05 NOT size:>10k web", "a"),
        ("++ web", "ab"),
        ("", ""),
        ("-dogs", ""),
    ],
)
def test_query_finds_pages(searcher: Searcher, text: str, found: str):
    answer = searcher.search(parse(text))
    assert "".join(sorted(SHORT[url] for url in urls(answer))) == found
    assert answer.total == len(found)


def test_site_is_a_host_and_all_below(tmp_path: Path):
    hosts = ("docs.a.test", "v2.docs.a.test", "notdocs.a.test", "a.test", "docs.a.test.b.test")
    made = [Page(f"https://{host}/", host, "kiwi") for host in hosts]
    made.append(Page("gemini://old.docs.a.test/", "Gemini", "kiwi"))
    searcher = Searcher(index(tmp_path, made))
    found = {*urls(searcher.search(parse("kiwi site:docs.a.test")))}
    below = {"https://docs.a.test/", "https://v2.docs.a.test/", "gemini://old.docs.a.test/"}
    assert found == below
    others = {page.url for page in made} - below
    assert {*urls(searcher.search(parse("kiwi -site:docs.a.test")))} == others


def test_pages_with_some_words_follow_those_with_all(searcher: Searcher):
    answer = searcher.search(parse("everything dogs nothing"))
    assert {SHORT[url] for url in urls(answer)} == {"a", "b", "o"}
    assert answer.notes == ("no page has all these words: these have some of them",)
    answer = searcher.search(parse("everything dogs"))
    assert [SHORT[url] for url in urls(answer)] == ["b", "a"]
    assert not answer.notes


def test_filters_alone_list_the_last_fetched_first(tmp_path: Path):
    days = (3, 9, 1, 5)
    made = [
        Page(f"https://a.test/{day}", "Title", "kiwi", fetched=datetime(2026, 11, day, tzinfo=UTC))
        for day in days
    ]
    found = Searcher(index(tmp_path, made)).search(parse("site:a.test"))
    assert urls(found) == [f"https://a.test/{day}" for day in (9, 5, 3, 1)]


def test_a_page_about_one_word_is_behind_those_with_all(tmp_path: Path):
    made = [
        Page("https://all.test/", "Fruit", "kiwi banana " + "and other fruit " * 100),
        Page("https://some.test/", "Kiwi", "kiwi kiwi kiwi"),
        *(Page(f"https://other{n}.test/", "Other", "other fruit") for n in range(20)),
    ]
    found = Searcher(index(tmp_path, made)).search(parse("kiwi banana"))
    assert urls(found) == ["https://all.test/", "https://some.test/"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("serch", "search"),
        ('serch -x "dogs"', 'search -x "dogs"'),
        ("intitle:othr lang:en", "intitle:other lang:en"),
        ("everythng dogz", "everything dogs"),
        ("runs", ""),
        ("search", ""),
        ("qqqqqq", ""),
    ],
)
def test_did_you_mean(searcher: Searcher, text: str, meant: str):
    assert searcher.search(parse(text)).meant == meant


@pytest.mark.parametrize("text", ["walk", "walked", "walking"])
def test_each_form_of_a_word_finds_the_others(tmp_path: Path, text: str):
    """A word that is its own stem is in the body alone."""
    bodies = {"https://a.test/": "we walk", "https://b.test/": "it walked", "https://c.test/": "no"}
    pages = [Page(url, body=body) for url, body in bodies.items()]
    answer = Searcher(index(tmp_path, pages)).search(parse(text))
    assert {*urls(answer)} == {"https://a.test/", "https://b.test/"}


def test_words_are_marked_in_other_forms(tmp_path: Path):
    body = b"<p>" + b"padding " * 100 + b"the dog <b>runs</b> &amp; rests</p>" + b"more " * 100
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
    (tmp_path / "warc").mkdir()
    url = "https://a.test/"
    [file] = written(tmp_path / "warc", [capture(odd=Odd(head + body, body), url=url)])
    place = next(_places(file))
    page = Page(url, "Running a dog", "the dog runs rests", place=place)
    searcher = Searcher(index(tmp_path / "index", [page], [tmp_path]))
    found = searcher.search(parse("run")).results[0]
    assert [each.text for each in found.title if each.is_marked] == ["Running"]
    assert [each.text for each in found.snippet if each.is_marked] == ["runs"]
    assert "runs & rests" in joined(found.snippet)
    assert "runs & rests" in (searcher.text(url) or "")
    shutil.rmtree(tmp_path / "warc")
    found = Searcher(tmp_path / "index").search(parse("run")).results[0]
    assert found.snippet == []
    assert joined(found.title) == "Running a dog"


def _places(file: Path):
    for line in (
        file.with_name(file.name.removesuffix(".warc.gz") + ".cdxj").read_text().split("\n")
    ):
        if line:
            fields = json.loads(line.split(" ", 2)[2])
            name = f"warc/{file.name}"
            yield CapturePlace(0, name, int(fields["offset"]), int(fields["length"]))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("warc/{}", "A secret word"),
        ("../job/warc/{}", None),
        ("../warc/{}", None),
        ("warc/../../warc/{}", None),
        ("{folder}/warc/{}", None),
    ],
)
def test_place_outside_of_the_crawl_is_not_read(tmp_path: Path, name: str, text: str | None):
    made = fetch("https://a.test/", b"<p>A secret word")
    [inside] = archived(tmp_path / "job" / "warc", [made])
    shutil.copytree(inside.parent, tmp_path / "warc")
    [place] = _places(inside)
    place = CapturePlace(0, name.format(inside.name, folder=tmp_path), place.offset, place.length)
    page = Page("https://a.test/", "Title", "word", place=place)
    searcher = Searcher(index(tmp_path / "index", [page], [tmp_path / "job"]))
    assert joined(searcher.search(parse("word")).results[0].snippet) == (text or "")
    assert searcher.text("https://a.test/") == text


def test_links_and_hosts_rank_pages_of_equal_text(tmp_path: Path):
    texts = ("Same title", "same body of words")
    pages = [
        Page("https://none.test/p", *texts),
        Page("https://linked.test/p", *texts, linking_hosts=30),
        Page("https://said.test/p", *texts, anchors="body", linking_hosts=30),
        Page("https://known.test/p", *texts),
    ]
    searcher = Searcher(index(tmp_path, pages))
    assert urls(searcher.search(parse("body")))[:2] == [
        "https://said.test/p",
        "https://linked.test/p",
    ]
    (tmp_path / RANKS).write_text("known.test\t1000000.0\t0.5\n")
    found = searcher.search(parse("body"), explain=True)
    assert urls(found) == [f"https://{name}.test/p" for name in ("said", "known", "linked", "none")]
    product, parts = 1.0, {name: value for name, value, _ in found.results[1].parts}
    assert parts["host"] == pytest.approx(1.48)
    for name, value in parts.items():
        product *= 1.0 if name.startswith(" ") else value
    assert product == pytest.approx(found.results[1].score)
    leaves = sum(value for name, value in parts.items() if name.startswith(" "))
    assert leaves == pytest.approx(parts["text"], rel=1e-4)


def test_bad_ranks_are_named(tmp_path: Path):
    searcher = Searcher(index(tmp_path, PAGES))
    (tmp_path / RANKS).write_text("b.test\tx\n")
    with pytest.raises(KrowlError, match=r"ranks\.tsv"):
        searcher.search(parse("web"))


def test_more_pages_than_are_ranked_are_counted(tmp_path: Path):
    pages = [Page(f"https://h{n}.test/", "Word", "word") for n in range(RANKED_MAX + 50)]
    searcher = Searcher(index(tmp_path, pages))
    found = searcher.search(parse("word"), limit=10, offset=RANKED_MAX - 5)
    assert (found.total, found.reached, len(found.results)) == (RANKED_MAX + 50, RANKED_MAX, 5)
    assert searcher.search(parse("word"), offset=10**6).results == []


@pytest.mark.parametrize("text", ["word", "lang:en"])
def test_near_copies_take_no_place_of_other_pages(tmp_path: Path, text: str):
    """Though they are more than are ranked at a time, and better."""
    mark = bytes(range(16))
    nearly, other = bytes([mark[0] ^ 0xFF, *mark[1:]]), bytes(16 * [0x55])
    days = (datetime(2026, 11, day, tzinfo=UTC) for day in range(1, 4))
    made = [
        Page(f"https://h{n}.test/", "Word", "word", fingerprint=(mark, nearly)[n % 2])
        for n in range(RANKED_MAX + 50)
    ]
    made += [
        Page(f"https://other{n}.test/", "Text", "word " + "of a text " * 20, fetched=day)
        for n, day in enumerate(days)
    ]
    made.append(Page("https://far.test/", "Text", "word in a long text" * 9, fingerprint=other))
    found = Searcher(index(tmp_path, made)).search(parse(text))
    assert (found.total, found.reached, len(found.results)) == (5, 5, 5)


def test_index_is_searched_while_it_is_written(tmp_path: Path):
    folder = index(tmp_path, PAGES)
    searcher = Searcher(folder)
    assert searcher.search(parse("kiwi")).total == 0
    failures: list[Exception] = []
    stopped = threading.Event()

    def ask() -> None:
        while not stopped.is_set():
            try:
                assert searcher.search(parse("web")).total == 2
            except Exception as error:  # noqa: BLE001 - of another thread
                failures.append(error)
                return

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for number in range(5):
            index(folder, [Page(f"https://k{number}.test/", "Kiwi", "kiwi")])
            assert searcher.search(parse("kiwi")).total == number + 1
    finally:
        stopped.set()
        asking.join()
    assert not failures


def test_missing_index_names_the_command(tmp_path: Path):
    searcher = Searcher(tmp_path / "none")
    with pytest.raises(
        SearchError, match=r"there is no index .*none: make it with .* index JOBDIR"
    ):
        searcher.search(parse("web"))
    index(tmp_path / "none", PAGES)
    assert searcher.search(parse("web")).total == 2


def test_folder_of_another_kind_is_refused(tmp_path: Path):
    with pytest.raises(SearchError, match=r"is no index, it has no state\.json"):
        Searcher(tmp_path).search(parse("web"))


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ('{"form": 999, "jobdirs": []}', "has form 999, and this version reads form"),
        ("{", "state.json cannot be read"),
        ('{"form": "x"}', "state.json cannot be read"),
    ],
)
def test_index_of_another_form_is_refused(tmp_path: Path, state: str, says: str):
    index(tmp_path, PAGES)
    (tmp_path / STATE).write_text(state)
    with pytest.raises(SearchError, match=says):
        Searcher(tmp_path).search(parse("web"))


@pytest.mark.parametrize("pattern", ["meta.json", "*.store", "*.term", "*.idx", "*.fast", "*.pos"])
@pytest.mark.parametrize("left", [0, 40])
def test_damaged_index_says_so(tmp_path: Path, pattern: str, left: int):
    """It never ends the process, and never finds what is not there."""
    index(tmp_path, PAGES)
    for path in (tmp_path / SEGMENTS).glob(pattern):
        path.write_bytes(path.read_bytes()[:left])
    said = ""
    try:
        found = urls(Searcher(tmp_path).search(parse('"search everything"'), explain=True))
    except SearchError as error:
        found, said = [], str(error)
    assert {*found} <= {*SHORT}
    assert found or str(tmp_path) in said
    assert "\n" not in said


def test_panic_over_damaged_postings_is_an_error(tmp_path: Path):
    """tantivy trusts its files. A panic is no Exception in Python."""
    pages = [Page(f"https://a.test/{n}", "Web", "web " * n + "dogs") for n in range(1, 130)]
    [path] = (index(tmp_path, pages) / SEGMENTS).glob("*.idx")
    whole = path.read_bytes()

    def failed_by(at: int) -> str:
        # A new file: the old one is mapped by the searcher before.
        path.unlink()
        path.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
        return _cause(Searcher(tmp_path))

    # The lists are in the middle.
    places = range(len(whole) * 2 // 5, len(whole))
    assert any(failed_by(at) == "PanicException" for at in places)


def _cause(searcher: Searcher) -> str:
    """Return the name of what a query failed by; "" if it did not."""
    try:
        searcher.search(parse("web dogs"))
    except SearchError as error:
        return type(error.__cause__ and error.__cause__.__cause__).__name__
    return ""


@pytest.mark.parametrize(
    ("text", "count"),
    [("since:0001", 5), ("until:0001", 0), ("since:9000", 0), ("date:0001..9000", 5)],
)
def test_dates_far_away_are_dates(searcher: Searcher, text: str, count: int):
    """tantivy's dates are those from 1677 to 2262."""
    assert searcher.search(parse(text)).total == count


def test_misspelt_word_is_told_though_pages_have_the_others(tmp_path: Path):
    pages = [Page(f"https://h{n}.test/", "Kiwi", "kiwi banana") for n in range(20)]
    found = Searcher(index(tmp_path, pages)).search(parse("kiwi bananna"))
    assert found.total == 20
    assert found.meant == "kiwi banana"


@pytest.mark.parametrize(("pages", "told"), [(8, ""), (60, "apple banana")])
def test_query_that_finds_hardly_more_is_not_told(tmp_path: Path, pages: int, told: str):
    """The other word is frequent, but not on pages with the rest of the query."""
    made = [Page(f"https://a{n}.test/", "Typo", "aplle banana") for n in range(5)]
    made += [Page(f"https://b{n}.test/", "Fruit", "apple banana") for n in range(pages)]
    made += [Page(f"https://c{n}.test/", "Apple", "apple cherry") for n in range(60)]
    found = Searcher(index(tmp_path, made)).search(parse("aplle banana"))
    assert found.meant == told


@pytest.mark.parametrize(("titles", "found"), [(15, 16), (16, 16)])
def test_prefix_stands_for_words_of_titles_if_they_have_enough(
    tmp_path: Path, titles: int, found: int
):
    made = [Page(f"https://h{n}.test/", f"Kiwi{n}", "fruit") for n in range(titles)]
    made.append(Page("https://text.test/", "Other", "a kiwifruit"))
    searcher = Searcher(index(tmp_path, made))
    assert searcher.search(parse("kiwi*")).total == found


def test_index_is_asked_by_its_own_fields(tmp_path: Path):
    """tantivy knows fields by their numbers: those of the index may differ from ours."""
    index(tmp_path, PAGES)
    meta = tmp_path / SEGMENTS / "meta.json"
    shutil.rmtree(meta.parent)
    meta.parent.mkdir()
    builder = tantivy().SchemaBuilder()
    for name in ("body", "title", "headings", "anchors", CJK, "body_en"):
        builder.add_text_field(name, stored=name == "title", tokenizer_name=FOLDED)
    for name in ("url", "lang", "host", "domain"):
        builder.add_text_field(name, stored=True, tokenizer_name="raw", index_option="basic")
    made = tantivy().Index(builder.build(), path=str(meta.parent))
    made.register_tokenizer(FOLDED, analysers()[FOLDED])
    writer = made.writer(15_000_000, 1)
    page = {"url": "https://a.test/", "lang": "en", "body": "kiwi", "title": "Kiwi"}
    writer.add_document(tantivy().Document(**page))
    writer.commit()
    writer.wait_merging_threads()
    assert urls(Searcher(tmp_path).search(parse("kiwi lang:en"))) == ["https://a.test/"]


def test_links_do_not_lift_a_page_above_those_with_all_words(tmp_path: Path):
    made = [
        Page("https://all.test/", "Fruit", "kiwi banana papaya " + "and other fruit " * 100),
        Page("https://some.test/", "Kiwi banana", "kiwi banana", linking_hosts=5000),
        *(Page(f"https://other{n}.test/", "Other", "other fruit") for n in range(20)),
    ]
    found = Searcher(index(tmp_path, made)).search(parse("kiwi banana papaya"))
    assert urls(found) == ["https://all.test/", "https://some.test/"]
