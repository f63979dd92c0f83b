"""A JOBDIR keeps its spider and its scope: a start that would change one is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.support.crawling import frontier_view
from tests.support.crawls import anchors, crawl_of, page, paths, refused
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

# A chain: each page links to the next.
CHAIN = [
    page("/", anchors("/1")),
    *(page(f"/{number}", anchors(f"/{number + 1}")) for number in range(1, 6)),
    page("/6", ""),
    {"path": "/moved", "redirect": "/target"},
    page("/target", anchors("/6")),
]
EXTERNAL = {"SPIDER_MODULES": "krowlspider.spiders,tests.support.spiders"}


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def head(jobdir: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((jobdir / "job.json").read_bytes())
    return found


def test_resumed_crawl_keeps_its_scope(tmp_path: Path) -> None:
    """The command names no scope, and no seeds."""
    with SimulatedWeb(spec=CHAIN) as web:
        seeds = [web.url("a.test")]
        scope = {"max_depth": 2, "deny": "/x /y"}
        first = crawl_of(web, tmp_path, seeds, arguments={**scope, "max_pages": 1}).run()
        assert paths(web.log()) == ["/"]
        again = SimulatedCrawl(first.jobdir).run()
        assert paths(web.log()) == ["/", "/1", "/2"]
        assert "spider broad, without seeds; scope: max_depth=2 deny=/x /y\n" in again.log
        assert "stay queued" not in again.log
        crawl_of(web, tmp_path, seeds, arguments={"deny": "/y /x", "max_depth": 2}).run()
        assert len(paths(web.log())) == 3


def test_changed_scope_is_refused_without_scope_new(tmp_path: Path) -> None:
    with SimulatedWeb(spec=CHAIN) as web:
        seeds = [web.url("a.test")]
        kept = {"max_depth": 1, "max_pages": 1}
        jobdir = crawl_of(web, tmp_path, seeds, arguments=kept).run().jobdir
        before, asked = contents(jobdir), {"max_depth": 3, "max_pages": 1, "same_host": 1}
        message = refused(crawl_of(web, tmp_path, seeds, arguments=asked))
        assert message == (
            f"krowlspider: JOBDIR {jobdir} keeps its scope"
            " (max_depth is 1, not 3; same_host is 0, not 1): leave out the arguments of the scope"
            " to go on with it, or add -a scope=new to change it for the links of pages fetched"
            " from now on; those of pages that are done need a new JOBDIR"
        )
        assert contents(jobdir) == before
        assert paths(web.log()) == ["/"]
        changed = crawl_of(web, tmp_path, seeds, arguments={**asked, "scope": "new"}).run()
        since = ", for links of pages fetched from now on; URLs queued before stay queued\n"
        assert f"max_depth=3 same_host=1{since}" in changed.log
        assert paths(web.log()) == ["/", "/1"]
        SimulatedCrawl(jobdir).run()
        assert paths(web.log()) == ["/", "/1", "/2", "/3"]


def test_wider_scope_of_a_finished_crawl_warns_of_its_limits(tmp_path: Path) -> None:
    """Pages that are done are not read again."""
    with SimulatedWeb(spec=CHAIN) as web:
        seeds = [web.url("a.test")]
        crawl_of(web, tmp_path, seeds, arguments={"max_depth": 0}).run()
        wider = {"max_depth": 2, "scope": "new"}
        again = crawl_of(web, tmp_path, seeds, arguments=wider).run()
        assert paths(web.log()) == ["/"]
    (line,) = again.complaints
    assert line.endswith(
        "No URL is queued: give new seeds; links that pages already done had, as after a change of"
        " the scope, need a new JOBDIR or scrapy frontier JOBDIR --import FILE"
    )


def test_scope_is_refused_if_the_start_gives_only_a_part(tmp_path: Path) -> None:
    with SimulatedWeb(spec=CHAIN) as web:
        seeds = [web.url("a.test")]
        scope = {"max_depth": 1, "allow": "/1"}
        crawl_of(web, tmp_path, seeds, arguments=scope).run()
        message = refused(crawl_of(web, tmp_path, seeds, arguments={"max_depth": 1}))
        assert "(allow is /1, not unset)" in message


def test_max_depth_0_fetches_only_the_seeds(tmp_path: Path) -> None:
    """And the targets of their redirects. Sitemaps are no seeds."""
    with SimulatedWeb(spec=CHAIN) as web:
        seeds = [web.url("a.test", path) for path in ("/", "/3", "/moved")]
        settings = {"KROWL_SITEMAPS": 1}
        crawl = crawl_of(web, tmp_path, seeds, arguments={"max_depth": 0}, settings=settings)
        crawl.run()
        assert sorted(paths(web.log())) == ["/", "/3", "/moved", "/target"]
        assert "max_depth=0" in crawl.log


def test_jobdir_of_another_spider_is_refused_by_name(tmp_path: Path) -> None:
    """A subclass of the broad spider is another spider."""
    with SimulatedWeb(spec=CHAIN) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], arguments={"max_pages": 2}).run()
        before = contents(crawl.jobdir)
        arguments = {"root": web.url("a.test", "")}
        for spider, given in (("ordinary", arguments), ("broader", {})):
            other = SimulatedCrawl(crawl.jobdir, spider=spider, arguments=given, settings=EXTERNAL)
            assert refused(other) == (
                f"krowlspider: JOBDIR {crawl.jobdir} belongs to the spider 'broad', not to"
                f" {spider!r}: start that one, or give another JOBDIR"
            )
        assert contents(crawl.jobdir) == before
        assert paths(web.log()) == ["/", "/1"]


def test_jobdir_without_scope_takes_that_of_the_start(tmp_path: Path) -> None:
    """It was made by an earlier version, which recorded no spider either."""
    with SimulatedWeb(spec=CHAIN) as web:
        seeds = [web.url("a.test")]
        jobdir = crawl_of(web, tmp_path, seeds, arguments={"max_pages": 1}).run().jobdir
        old = {name: head(jobdir)[name] for name in ("format", "seed", "software")}
        (jobdir / "job.json").write_text(json.dumps(old))
        assert frontier_view(jobdir)["queued"] == 1
        assert head(jobdir) == old
        crawl_of(web, tmp_path, seeds, arguments={"max_depth": 2}).run()
        assert paths(web.log()) == ["/", "/1", "/2"]
        new = head(jobdir)
        assert new == {**old, "spider": "broad", **{key: new[key] for key in ("scope", "delays")}}
        assert "max_depth is 2, not 3" in refused(
            crawl_of(web, tmp_path, seeds, arguments={"max_depth": 3})
        )


def test_damaged_scope_is_refused_with_a_way_out(tmp_path: Path) -> None:
    with SimulatedWeb(spec=CHAIN) as web:
        jobdir = (
            crawl_of(web, tmp_path, [web.url("a.test")], arguments={"max_pages": 1}).run().jobdir
        )
    whole = json.dumps({**head(jobdir), "scope": 0})
    for scope in ('"', "[]", '{"max_depth": -1}', '{"max_depth": true}', '{"allow": ["("]}'):
        (jobdir / "job.json").write_text(whole.replace('"scope": 0', f'"scope": {scope}'))
        before = contents(jobdir)
        message = refused(SimulatedCrawl(jobdir))
        assert f"{jobdir}/job.json cannot be read as a crawl's head" in message, scope
        assert message.endswith("put it back from a copy, or give another JOBDIR")
        assert contents(jobdir) == before
