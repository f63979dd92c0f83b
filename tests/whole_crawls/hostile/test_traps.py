"""Scope and traps in real crawls: each trap stops at its bound, and counters show its cost."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fastwarc.warc import ArchiveIterator, WarcRecordType

from krowlspider.job.exclude_file import ExcludeFile
from krowlspider.urls.scope import FOLLOWED_MAX
from tests.support.crawling import frontier_view
from tests.support.crawls import crawl_of, page, pages
from tests.support.simulated_crawl import interrupt
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.crawling import Crawl
    from tests.support.simulated_loop import Script

ROBOTS = page("/robots.txt", "", status=404)
QUICK = {"RETRY_TIMES": 0, "KROWL_DELAY_MIN": 0.02, "KROWL_DELAY_FACTOR": 0}


def crawl(
    web: SimulatedWeb, folder: Path, *paths: str, script: Script | None = None, **settings: Any
) -> Crawl:
    seeds = [web.url("a.test", path) for path in paths]
    return crawl_of(web, folder, seeds, settings={**QUICK, **settings}, script=script)


# Counters of links that are dropped before scope and traps decide on them.
LEFT = "krowl/links/left_count/"


def fetched(web: SimulatedWeb) -> list[str]:
    return sorted(entry.path for entry in pages(web.log()))


def dropped(crawl: Crawl) -> dict[str, int]:
    prefix = "krowl/frontier/dropped_count/"
    return {
        name.removeprefix(prefix): count
        for name, count in crawl.stats.items()
        if name.startswith(prefix)
    }


def anchors(*hrefs: str) -> str:
    return "".join(f'<a href="{href}">x</a>' for href in hrefs)


def test_trapped_urls_are_counted_with_their_reasons(tmp_path: Path) -> None:
    """For path, extension and calendar."""
    deep = "".join(f"/{number}" for number in range(21))
    start = anchors(
        "mailto:me@a.test",
        deep,
        "/x/x/x/x",
        "/a.zip",
        "/A.JPG?size=1",
        "/x?month=2999-01",
        "/x?d=2099-01",
    )
    with SimulatedWeb(spec=[ROBOTS, page("/", start), page("^/", "")]) as web:
        done = crawl(web, tmp_path, "/").run()
        assert fetched(web) == ["/", "/x?month=2999-01"]
        assert dropped(done) == {
            "path_depth": 1,
            "repeated_segments": 1,
            "extension": 2,
            "calendar": 1,
        }
        assert done.stats[LEFT + "scheme"] == 1
        assert frontier_view(done.jobdir)["dropped"] == dropped(done)


def test_seed_is_fetched_whatever_its_path(
    tmp_path: Path,
) -> None:
    with SimulatedWeb(spec=[ROBOTS, page("^/", "")]) as web:
        deep = "".join(f"/{number}" for number in range(30))
        done = crawl(web, tmp_path, "/a.zip", deep, "/x/x/x/x/x").run()
        assert len(fetched(web)) == 3
        assert dropped(done) == {}


def test_an_empty_list_of_extensions_skips_none(tmp_path: Path) -> None:
    with SimulatedWeb(spec=[ROBOTS, page("/", anchors("/b.zip")), page("^/", "")]) as web:
        done = crawl(web, tmp_path, "/", KROWL_SKIP_EXTENSIONS="").run()
        assert fetched(web) == ["/", "/b.zip"]
        assert dropped(done) == {}


def test_page_behind_session_ids_is_fetched_once(
    tmp_path: Path,
) -> None:
    """At the URL that was found first."""
    start = anchors(
        "/p;jsessionid=1?q", "/p;jsessionid=2?q", "/p?q", "/q?PHPSESSID=a", "/q?PHPSESSID=b"
    )
    again = anchors("/p;jsessionid=3?q", "/q?PHPSESSID=c", "/;jsessionid=4")
    with SimulatedWeb(spec=[ROBOTS, page("/", start), page("^/[pq]", again)]) as web:
        done = crawl(web, tmp_path, "/").run()
        assert fetched(web) == ["/", "/p;jsessionid=1?q", "/q?PHPSESSID=a"]
        assert done.stats["dupefilter/filtered"] == 3 + 2 * 3


def test_escapes_in_both_cases_are_one_page(tmp_path: Path) -> None:
    """It is fetched as it was found first. A redirect to the other spelling is followed."""
    found = anchors("/caf%c3%a9?q=%c3", "/caf%C3%A9?q=%C3", "/caf%C3%a9?q=%C3", "/%2f", "/%2F")
    site = [{"path": "/%2f", "redirect": "/%2F"}, page("^/", found)]
    with SimulatedWeb(spec=[ROBOTS, *site]) as web:
        crawl(web, tmp_path, "/").run()
        assert fetched(web) == ["/", "/%2F", "/%2f", "/caf%c3%a9?q=%c3"]


def test_a_page_that_redirects_to_its_own_session_id_is_fetched(tmp_path: Path) -> None:
    """The target has the identity of the page that redirects to it.

    A maze of new session ids ends with its redirects.
    """
    maze = [
        {"path": f"/maze;jsessionid={hop}", "redirect": f"/maze;jsessionid={hop + 1}"}
        for hop in range(9)
    ]
    spec = [ROBOTS, {"path": "/p", "redirect": "/p;jsessionid=1"}, page("/p;jsessionid=1", "here")]
    with SimulatedWeb(spec=[*spec, *maze]) as web:
        done = crawl(web, tmp_path, "/p", "/maze;jsessionid=0", REDIRECT_MAX_TIMES=3).run()
        assert fetched(web) == [
            *(f"/maze;jsessionid={hop}" for hop in range(4)),
            *("/p", "/p;jsessionid=1"),
        ]
        assert dropped(done) == {"redirects": 1}


def test_the_same_body_again_and_again_yields_no_links(tmp_path: Path) -> None:
    start = anchors(*(f"/m{number}/" for number in range(13)))
    maze = [page("/", start), page("^/m\\d+/$", anchors("more")), page("^/", "leaf")]
    with SimulatedWeb(spec=[ROBOTS, *maze]) as web:
        done = crawl(web, tmp_path, "/").run()
        assert len(fetched(web)) == 1 + 13 + FOLLOWED_MAX
        assert done.stats["krowl/pages/duplicate_count"] == 13 - FOLLOWED_MAX
        assert dropped(done) == {}


def test_relative_links_that_lead_ever_deeper_end(tmp_path: Path) -> None:
    with SimulatedWeb(spec=[ROBOTS, page("^/m/", anchors("more/"))]) as web:
        done = crawl(web, tmp_path, "/m/").run()
        assert fetched(web) == ["/m/" + "more/" * depth for depth in range(4)]
        assert dropped(done) == {"repeated_segments": 1}


def test_equal_bodies_of_different_hosts_are_no_duplicates(tmp_path: Path) -> None:
    with SimulatedWeb(spec=[ROBOTS, page("/", anchors("/p")), page("/p", "leaf")]) as web:
        hosts = FOLLOWED_MAX + 1
        seeds = [web.url(f"h{number}.test") for number in range(hosts)]
        done = crawl_of(web, tmp_path, seeds, settings=QUICK).run()
        assert fetched(web) == ["/"] * hosts + ["/p"] * hosts
        assert "krowl/pages/duplicate_count" not in done.stats


NOFOLLOW = [
    ROBOTS,
    page("/", anchors("/tag", "/meta", "/other", "/all") + '<a rel="nofollow" href="/rel">x</a>'),
    {**page("/tag", anchors("/1")), "headers": {"X-Robots-Tag": "noindex, nofollow"}},
    page("/meta", "<meta name=robots content=nofollow>" + anchors("/2")),
    {**page("/other", anchors("/3")), "headers": {"X-Robots-Tag": "otherbot: none"}},
    {**page("/all", anchors("/4")), "headers": {"X-Robots-Tag": "krowlspider: none"}},
    page("^/", "leaf"),
]


@pytest.mark.parametrize(
    ("follow", "found", "left"),
    [
        ("0", ["/3"], {"nofollow": 3, "scheme": 0}),
        ("1", ["/1", "/2", "/3", "/4", "/rel"], {"nofollow": 0, "scheme": 0}),
    ],
)
def test_nofollow_is_kept_unless_set_otherwise(
    tmp_path: Path, follow: str, found: list[str], left: dict[str, int]
) -> None:
    """In headers, pages and links."""
    with SimulatedWeb(spec=NOFOLLOW) as web:
        done = crawl(web, tmp_path, "/", KROWL_FOLLOW_NOFOLLOW=follow).run()
        assert fetched(web) == sorted(["/", "/all", "/meta", "/other", "/tag", *found])
        assert {name: done.stats.get(LEFT + name, 0) for name in left} == left
        noindex = {Path(item["url"]).name for item in done.items if item["noindex"]}
        assert noindex == {"tag", "all"}


def test_link_headers_are_links_and_the_canonical_url_is_told(tmp_path: Path) -> None:
    header = '</2>; rel="next", </no>; rel="prev nofollow", </a.css>; rel=preload; as=style'
    pdf = {"Content-Type": "application/pdf", "Link": "</doc>; rel=canonical, </3>; rel=next"}
    spec = [
        ROBOTS,
        page("/", "<html lang=de><link rel=canonical href=/in-page>" + anchors("/doc.pdf"))
        | {"headers": {"Link": header}},
        {"path": "/doc.pdf", "body": "%PDF", "headers": pdf},
        page("^/", "leaf"),
    ]
    with SimulatedWeb(spec=spec) as web:
        done = crawl(web, tmp_path, "/").run()
        assert fetched(web) == ["/", "/2", "/doc.pdf"]
        canonical = {item["url"]: (item["canonical"], item["lang"]) for item in done.items}
        root = web.url("a.test", "")
        assert canonical == {
            f"{root}/": (f"{root}/in-page", "de"),
            f"{root}/2": (None, ""),
            f"{root}/doc.pdf": (f"{root}/doc", ""),
        }


def test_item_has_the_chain_of_its_redirects(tmp_path: Path) -> None:
    """Loops of redirects end with a reason."""
    moved = {"/0": "/1", "/1": "/2", "/2": "/end", "/a": "/b", "/b": "/a", "/self": "/self#x"}
    spec = [{"path": path, "redirect": target} for path, target in moved.items()]
    with SimulatedWeb(spec=[ROBOTS, *spec, page("/end", "x")]) as web:
        done = crawl(web, tmp_path, "/0", "/a", "/self").run()
        assert fetched(web) == ["/0", "/1", "/2", "/a", "/b", "/end", "/self"]
        assert dropped(done) == {"redirect_loop": 2}
        root = web.url("a.test", "")
        chains = {item["url"]: item.get("redirected_from") for item in done.items}
        assert chains == {f"{root}/end": [f"{root}/{hop}" for hop in range(3)]}
        led = {}
        for path in (tmp_path / "job" / "warc").glob("*.warc.gz"):
            whole = BytesIO(path.read_bytes())
            for record in ArchiveIterator(whole, record_types=WarcRecordType.metadata):
                led[record.headers["WARC-Target-URI"]] = record.reader.read().decode()
        assert led.keys() == {f"{root}/1", f"{root}/2", f"{root}/b", f"{root}/end"}
        assert led[f"{root}/2"].split() == [
            *("redirected-from:", f"{root}/0", "redirected-from:", f"{root}/1"),
            *("via:", f"{root}/1"),
        ]


def test_a_loop_that_comes_back_under_another_name_ends_as_known(tmp_path: Path) -> None:
    spec = [{"path": "/a?gclid=1", "redirect": "/b"}, {"path": "/b", "redirect": "/a"}]
    with SimulatedWeb(spec=[ROBOTS, *spec]) as web:
        done = crawl(web, tmp_path, "/a?gclid=1").run()
        assert fetched(web) == ["/a?gclid=1", "/b"]
        assert done.stats["dupefilter/filtered"] == 1


def test_a_redirect_to_what_is_known_is_known(tmp_path: Path) -> None:
    spec = [ROBOTS, page("/", anchors("/p", "/to-p")), {"path": "/to-p", "redirect": "/p?utm_id=1"}]
    with SimulatedWeb(spec=[*spec, page("^/p", "x")]) as web:
        done = crawl(web, tmp_path, "/").run()
        assert fetched(web) == ["/", "/p", "/to-p"]
        assert done.stats["dupefilter/filtered"] == 1


def exclusions(folder: Path, text: str) -> Path:
    """Replace the file of expressions at once, as an editor does."""
    path = folder / "exclude.txt"
    (folder / "new").write_text(text)
    (folder / "new").replace(path)
    return path


def test_excluded_urls_are_not_fetched(
    tmp_path: Path,
) -> None:
    """Not even as seeds. An excluded host gets no request for robots.txt."""
    exclude = exclusions(tmp_path, "# b complained\n^https?://b[.]test[:/]\n/no\n")
    with SimulatedWeb(spec=[ROBOTS, page("/", anchors("/no", "/yes")), page("/yes", "")]) as web:
        done = crawl_of(
            web,
            tmp_path,
            [web.url("a.test"), web.url("b.test")],
            settings={**QUICK, "KROWL_EXCLUDE": exclude},
        ).run()
        assert fetched(web) == ["/", "/yes"]
        assert {entry.host for entry in web.log()} == {f"a.test:{web.port}"}
        assert dropped(done) == {"exclude": 2}


@pytest.mark.parametrize("text", ["# them\nbro(ken\n/no\n", "fine\n\xff"])
def test_an_expression_that_excludes_nothing_stops_the_start(tmp_path: Path, text: str) -> None:
    exclude = tmp_path / "exclude.txt"
    exclude.write_bytes(text.encode("latin-1"))
    with SimulatedWeb(spec=[page("/", "x")]) as web:
        settings = {"KROWL_EXCLUDE": exclude}
        done = crawl_of(web, tmp_path, [web.url("a.test")], settings=settings).run(code=2)
        assert f"KROWL_EXCLUDE {exclude} line 2 excludes nothing: not " in done.log
        assert web.log() == []


def test_excluded_host_is_not_asked_for_others_robots_txt(tmp_path: Path) -> None:
    exclude = exclusions(tmp_path, "//away[.]test[:/]\n")
    to = {"path": "/robots.txt", "redirect": "http://away.test:{port}/robots.txt"}
    with SimulatedWeb(spec=[{"host": "a.test", **to}, page("^/", "x")]) as web:
        settings = {**QUICK, "KROWL_EXCLUDE": exclude}
        done = crawl_of(web, tmp_path, [web.url("a.test")], settings=settings).run(code=4)
        assert [entry.host for entry in web.log()] == [f"a.test:{web.port}"]
        assert frontier_view(done.jobdir)["queued"] == 1


def test_host_excluded_during_a_crawl_is_left_alone_soon(
    tmp_path: Path,
) -> None:
    """Its queue is dropped and counted. If the file goes missing later, nothing changes."""
    exclude = exclusions(tmp_path, "")
    many = anchors(*(f"/{number}" for number in range(300)))
    with SimulatedWeb(spec=[ROBOTS, page("/", many), page("^/", "leaf")]) as web:
        seeds = [web.url("a.test"), web.url("b.test", "/1")]
        slow = {"KROWL_DELAY_MIN": 0.2, "KROWL_EXCLUDE": exclude}

        def exclude_it() -> Iterator[Callable[[], bool]]:
            yield lambda: len(pages(web.log())) >= 5
            exclusions(tmp_path, "//a[.]test[:/]\n")

        running = crawl_of(
            web, tmp_path, seeds, settings={**QUICK, **slow}, script=exclude_it()
        ).run()
        mine = [entry for entry in pages(web.log()) if entry.host.startswith("a.")]
        assert 4 <= len(mine) < 60
        assert dropped(running) == {"exclude": 301 - len(mine)}
        assert frontier_view(running.jobdir)["queued"] == 0
        exclude.unlink()
        again = crawl_of(web, tmp_path, seeds, settings=slow).run(code=2)
        assert "is not an existing file" in again.log


def test_missing_exclude_file_keeps_its_last_expressions(
    tmp_path: Path,
) -> None:
    """The log says so once."""
    exclude = exclusions(tmp_path, "/no$\n")
    spec = [ROBOTS, page("/", anchors("/1")), page("/3", anchors("/no"))]
    spec += [page(f"/{number}", anchors(f"/{number + 1}"), latency=2) for number in (1, 2)]
    with SimulatedWeb(spec=spec) as web:

        def remove() -> Iterator[Callable[[], bool]]:
            yield lambda: bool(pages(web.log()))
            exclude.unlink()

        running = crawl(web, tmp_path, "/", script=remove(), KROWL_EXCLUDE=exclude).run()
        assert fetched(web) == ["/", "/1", "/2", "/3"]
        assert dropped(running) == {"exclude": 1}
        assert running.log.count("cannot be read, so its last content stays in force") == 1


def test_new_exclude_file_counts_after_two_looks(tmp_path: Path) -> None:
    path = exclusions(tmp_path, "one\n")
    used: list[list[str]] = []
    file = ExcludeFile(
        path, lambda found: used.append([pattern.pattern for pattern in found.patterns])
    )
    file.apply()
    assert used == [["one"]]
    assert file.look() is None
    exclusions(tmp_path, "one\ntw")
    assert file.look() is None
    exclusions(tmp_path, "one\ntwo\n")
    assert file.look() is None
    found = file.look()
    assert found is not None
    assert [pattern.pattern for pattern in found.patterns] == ["one", "two"]
    assert file.look() is None


def test_replaced_file_of_equal_size_and_time_is_new(tmp_path: Path) -> None:
    path = exclusions(tmp_path, "one\n")
    before = path.stat()
    file = ExcludeFile(path, lambda _: None)
    exclusions(tmp_path, "two\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.look() is None
    assert file.look() is not None


def test_unreadable_exclude_file_is_read_when_it_is_back(
    tmp_path: Path,
) -> None:
    """It raises if the file is missing or too large."""
    path = exclusions(tmp_path, "one\n")
    file = ExcludeFile(path, lambda _: None)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        file.look()
    exclusions(tmp_path, "#" * 1024 * 1024 + "\n")
    assert file.look() is None
    with pytest.raises(OSError, match="more than"):
        file.look()
    exclusions(tmp_path, "two\n")
    assert [file.look() is None, file.look() is None] == [True, False]


def test_pipe_as_exclude_file_holds_nothing_up(
    tmp_path: Path,
) -> None:
    """Opening it would wait for a writer."""
    exclude = exclusions(tmp_path, "/no$\n")
    chain = [
        page(f"/{number}", anchors(f"/{number + 1}", f"/{number}/no")) for number in range(999)
    ]
    with SimulatedWeb(spec=[ROBOTS, *chain]) as web:

        def put_pipe() -> Iterator[Callable[[], bool]]:
            yield lambda: bool(pages(web.log()))
            os.mkfifo(tmp_path / "new")
            (tmp_path / "new").replace(exclude)
            yield lambda: "its last content stays in force: not a file" in running.log
            before = len(pages(web.log()))
            yield lambda: len(pages(web.log())) >= before + 25
            interrupt()

        settings = {"KROWL_EXCLUDE": exclude, "KROWL_DELAY_MIN": 0.05}
        running = crawl(web, tmp_path, "/0", script=put_pipe(), **settings)
        running.run()
        assert not any(path.endswith("/no") for path in fetched(web))
        assert dropped(running) == {"exclude": running.stats["krowl/frontier/done_count"]}
        assert running.log.count("cannot be read, so its last content stays in force") == 1


@pytest.mark.parametrize("target", ["/dev/zero", "/"])
def test_what_is_no_file_is_not_read_and_a_file_in_its_place_is(
    tmp_path: Path, target: str
) -> None:
    path = exclusions(tmp_path, "one\n")
    file = ExcludeFile(path, lambda _: None)
    (tmp_path / "new").symlink_to(target)
    (tmp_path / "new").replace(path)
    assert file.look() is None
    for _ in range(2):
        with pytest.raises(OSError, match="not a file"):
            file.look()
    exclusions(tmp_path, "two\n")
    assert file.look() is None
    found = file.look()
    assert found is not None
    assert [pattern.pattern for pattern in found.patterns] == ["two"]
