"""The sheets that clients write into the file of KROWL_POLICIES."""

from __future__ import annotations

import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest

from krowlspider.archive.disk import write_durably
from krowlspider.errors import KrowlError
from krowlspider.policies.sheets import Policies
from krowlspider.rpc.sheets import SheetFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OWN = '# of people\n[[sheet]]\nname = "own"\nmatch = ["example.org"]\ndepth = 9'


def put(path: Path, domain: str, **keys: Any) -> str:
    return SheetFile(str(path), 0.0).put(domain, keys)[1]


def test_a_sheet_keeps_its_other_keys_and_the_rest_of_the_file(tmp_path: Path):
    path = tmp_path / "policies.toml"
    path.write_bytes(OWN.encode())
    path.chmod(0o640)
    put(path, "a.example", depth=2, exclude=["^# --- end", '"\n'])
    put(path, "b.example", max_pages=3)
    assert put(path, "A.EXAMPLE", depth=1) == r'depth = 1, exclude = ["^# --- end", "\"\n"]'
    text = path.read_bytes().decode()
    assert text.startswith(OWN)
    found = {sheet.name: sheet.values for sheet in Policies.parse(text, "").sheets}
    assert [*found] == ["own", "UpsertDomainPolicy b.example", "UpsertDomainPolicy a.example"]
    assert found["UpsertDomainPolicy a.example"]["depth"] == 1
    assert len(found["UpsertDomainPolicy a.example"]["exclude"]) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    for domain in ("a.example", "b.example"):
        put(path, domain)
    assert path.read_bytes().decode().strip() == OWN


@pytest.mark.parametrize(
    ("domain", "keys", "said"),
    [
        ("a.example\n[[sheet]]", {"depth": 1}, "domain: "),
        ("", {"depth": 1}, "domain: "),
        ("co.uk", {"depth": 1}, "is a public suffix"),
        ("a.example", {"exclude": ["("]}, "exclude"),
        ("a.example", {"recrawl_min": float("nan")}, "recrawl_min"),
        ("example.org", {"depth": 1}, "depth"),
    ],
)
def test_what_would_be_an_error_of_the_file_is_refused(
    tmp_path: Path, domain: str, keys: dict[str, Any], said: str
):
    """The last one contradicts a sheet of a person."""
    path = tmp_path / "policies.toml"
    path.write_bytes(OWN.encode())
    with pytest.raises(KrowlError, match=said):
        put(path, domain, **keys)
    assert path.read_bytes() == OWN.encode()


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path):
    with pytest.raises(KrowlError, match=r"none\.toml cannot be read: No such file"):
        put(tmp_path / "none.toml", "a.example", depth=1)


def test_a_write_that_takes_long_is_seen_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its call may have ended: the sheet of either call is in the file all the same."""
    path = tmp_path / "policies.toml"
    path.write_bytes(OWN.encode())
    sheets = SheetFile(str(path), 0.0)
    begun, more = Event(), Event()

    @contextmanager
    def slowly(target: Path) -> Iterator[BinaryIO]:
        begun.set()
        more.wait(5)
        with write_durably(target) as draft:
            yield draft

    monkeypatch.setattr("krowlspider.rpc.sheets.write_durably", slowly)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(sheets.put, "a.example", {"depth": 1})
        assert begun.wait(5)
        second = threads.submit(sheets.put, "b.example", {"depth": 2})
        time.sleep(0.1)
        more.set()
        assert (first.result(5)[0], second.result(5)[0]) == (True, True)
    found = Policies.parse(path.read_text(), "").sheets
    assert [sheet.values["depth"] for sheet in found] == [9, 1, 2]
