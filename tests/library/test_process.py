"""Two processes never have one folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider import crawl, run
from krowlspider.library import crawls, process
from krowlspider.library.process import former
from tests.support.crawling import CONTACT

if TYPE_CHECKING:
    from pathlib import Path


class Stopping:
    """A process that stops, or one that crawls."""

    def __init__(self, jobdir: Path, *, is_leaving: bool = True):
        self.jobdir = str(jobdir)
        self.is_leaving = is_leaving
        self.has_ended = False
        self.waited = 0

    def wait(self) -> int:
        self.waited += 1
        return 0


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Stopping]:
    found: list[Stopping] = []
    monkeypatch.setattr(process, "_started", found)

    class NoChild:
        def __init__(self, *_: object):
            raise OSError("none starts here")

    monkeypatch.setattr(crawls, "CrawlProcess", NoChild)
    return found


async def test_a_start_waits_for_those_that_stop_in_its_folder(
    tmp_path: Path, started: list[Stopping]
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "job")
    one, other = Stopping(tmp_path / "link"), Stopping(tmp_path / "other")
    crawling = Stopping(tmp_path / "job", is_leaving=False)
    started += [one, other, crawling]
    pages = crawl("a.org", contact=CONTACT, jobdir=tmp_path / "job")
    with pytest.raises(OSError, match="none starts here"):
        await anext(pages)
    assert [each.waited for each in started] == [1, 0, 0]
    with pytest.raises(OSError, match="none starts here"):
        next(run("a.org", contact=CONTACT, jobdir=tmp_path / "job"))
    assert [each.waited for each in started] == [2, 0, 0]


def test_a_process_that_has_ended_is_reaped(tmp_path: Path, started: list[Stopping]) -> None:
    ended = Stopping(tmp_path / "other")
    ended.has_ended = True
    started.append(ended)
    assert former(str(tmp_path / "job")) == []
    assert ended.waited == 1
