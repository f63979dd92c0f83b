"""Wrong arguments are named before anything starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import krowlspider
from krowlspider.library import process
from krowlspider.library.arguments import order_of
from tests.support.crawling import CONTACT, ROOT
from tests.support.tables import table


def ordered(seeds: Any = "example.org", jobdir: Any = None, settings: Any = None, **limits: Any):
    named = {"contact": limits.pop("contact", CONTACT), "archive": limits.pop("archive", None)}
    return order_of(seeds, limits, jobdir=jobdir, settings=settings, **named)


@table(
    ("given", "error"),
    [
        ({"contact": "you@example.org"}, "contact='you@example.org' is a placeholder"),
        ({"contact": "me"}, "contact='me' is neither an e-mail address nor"),
        ({"seeds": []}, "seeds has no seed: give URLs or domains, or the jobdir"),
        ({"seeds": "ftp://a.org/"}, "seeds='ftp://a.org/': scheme ftp"),
        ({"seeds": ["a.org", "two words"]}, r"seeds\[1\]='two words': whitespace inside; give"),
        ({"seeds": ["# comment"]}, r"seeds\[0\]='# comment' is not one seed"),
        ({"seeds": "a.org\nb.org"}, "seeds='a.org.*: whitespace inside"),
        ({"seeds": Path("no-such-file")}, "seeds='no-such-file' cannot be read: give a file"),
        ({"seeds": [3]}, r"seeds\[0\]=3 is no text"),
        ({"max_pages": 0}, "max_pages=0: give a whole number from 1, or None"),
        ({"max_pages": True}, "max_pages=True: give"),
        ({"max_depth": -1}, "max_depth=-1: give a whole number from 0"),
        ({"max_depth": "2"}, "max_depth='2': give"),
        ({"allow": "("}, r"allow='\(': not a regular expression"),
        ({"deny": ["a", "b c"]}, "deny='b c': give regular expressions; no URL has a blank"),
        ({"same_domain": "yes"}, "same_domain='yes': give True or False"),
        ({"scope": "old"}, "scope='old': give 'new'"),
        ({"until": "end"}, "until='end': give 'seeds'"),
        ({"archive": "no"}, "archive='no': give True or False, or None: only with a jobdir"),
        ({"settings": {"KROWL_ARCHIVE": False}}, "settings has KROWL_ARCHIVE: give archive="),
        ({"settings": {"JOBDIR": "x"}}, "settings has JOBDIR: give jobdir="),
        ({"settings": {"KROWL_CONTACT": "x"}}, "settings has KROWL_CONTACT: give contact="),
        ({"max_page": 5}, "max_page= is no argument: give some of max_pages, max_depth"),
        ({"seeds": None}, "seeds=None: give URLs or domains, or the Path"),
        ({"seeds": b"a.org"}, "seeds=b'a.org': give URLs or domains"),
        ({"allow": 5}, "allow=5: give regular expressions as text"),
        ({"scope": []}, r"scope=\[\]: give 'new'"),
        ({"archive": []}, r"archive=\[\]: give True or False"),
        ({"jobdir": 5}, "jobdir=5: give the path of a folder"),
        ({"jobdir": ""}, "jobdir='': give the path of a folder"),
        ({"jobdir": "/x\udcff"}, r"jobdir='/x\\udcff' cannot be handed to the process"),
        ({"settings": "A=1"}, "settings='A=1': give a mapping"),
        ({"settings": {5: 1}}, "settings has 5: give the names of settings as text"),
        ({"settings": {"X": "\udcff"}}, r"settings\['X'\]=.* cannot be handed"),
        ({"settings": {"X": [10**30]}}, r"settings\['X'\]=.* cannot be handed"),
        ({"settings": {"X": Path}}, r"settings\['X'\]=.* cannot be handed .* by its import path"),
    ],
)
def test_a_wrong_argument_is_named(given: dict[str, Any], error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        ordered(**given)


def test_the_name_of_a_file_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("seeds").write_text("a.org\n")
    with pytest.raises(ValueError, match=r"seeds='seeds' is a file: give Path\('seeds'\)"):
        ordered("seeds")
    assert ordered(Path("seeds")).file == str(tmp_path / "seeds")


def test_the_order_has_what_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    order = ordered(
        (each for each in ("a.org", "b.org")),
        "job",
        {"KROWL_EXCLUDE": tmp_path / "list", "RETRY_HTTP_CODES": (500, 502)},
        max_pages=3,
        max_depth=0,
        allow=["a", r"b\.c"],
        deny="d",
        same_host=True,
        same_domain=False,
        scope="new",
        until="seeds",
    )
    assert (order.seeds, order.file, order.temporary) == (["a.org", "b.org"], None, False)
    assert order.jobdir == str(tmp_path / "job")
    assert order.arguments == {
        "max_pages": "3",
        "max_depth": "0",
        "allow": r"a b\.c",
        "deny": "d",
        "same_host": "1",
        "scope": "new",
        "until": "seeds",
    }
    assert order.settings == {
        "KROWL_CONTACT": CONTACT,
        "KROWL_ARCHIVE": True,
        "KROWL_EXCLUDE": str(tmp_path / "list"),
        "RETRY_HTTP_CODES": (500, 502),
    }


@pytest.mark.parametrize(
    ("jobdir", "archive", "expected"),
    [(None, None, False), ("job", None, True), (None, True, True), ("job", False, False)],
)
def test_what_has_a_folder_is_archived(
    jobdir: str | None, archive: bool | None, *, expected: bool
) -> None:
    assert ordered(jobdir=jobdir, archive=archive).settings["KROWL_ARCHIVE"] is expected


def test_nothing_starts_before_a_page_is_asked_for() -> None:
    before = list(process._started)
    pages = krowlspider.crawl("example.org", contact=CONTACT)
    pages_too = krowlspider.run("example.org", contact=CONTACT)
    assert process._started == before
    assert pages.stats == pages_too.stats == {}


def test_a_program_imports_neither_scrapy_nor_twisted() -> None:
    """Importing the package costs nothing, and a crawl installs no reactor in the program."""
    program = (
        "import sys, krowlspider; names = set(sys.modules);"
        "assert not any(each.startswith('krowlspider.') for each in names), names;"
        f"krowlspider.crawl('example.org', contact={CONTACT!r});"
        "assert not {'scrapy', 'twisted', 'uvloop'} & set(sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    with pytest.raises(AttributeError, match="has no attribute 'crawler'"):
        krowlspider.crawler  # type: ignore[attr-defined]
