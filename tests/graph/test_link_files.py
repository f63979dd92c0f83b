"""Files of links, and how they merge."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krowlspider.errors import KrowlError
from krowlspider.graph import link_files
from krowlspider.graph.link_files import Gathered, LinkFile, merge, write

if TYPE_CHECKING:
    from pathlib import Path

_HOST = st.sampled_from(["com.a", "com.a-b", "com.a.b", "com.b", "com.b:1965", "org.c", "test.d"])
LINKS = st.dictionaries(_HOST, st.sets(_HOST, max_size=5), max_size=6)


def links_in(part: LinkFile) -> set[tuple[str, str]]:
    names = [name.decode().rstrip("\n") for name in part.read_names()]
    assert names == sorted(names) == part.text().decode().split("\n")[:-1]
    keys = part.keys().tolist()
    assert keys == sorted(set(keys))
    return {(names[key >> 32], names[key & 0xFFFFFFFF]) for key in keys}


def pairs(targets: dict[str, set[str]]) -> set[tuple[str, str]]:
    return {(source, target) for source, others in targets.items() for target in others}


@settings(max_examples=30, deadline=None)
@given(st.lists(LINKS, max_size=6))
def test_a_merge_has_the_links_of_all_parts(tmp_path_factory, given: list[dict[str, set[str]]]):
    folder = tmp_path_factory.mktemp("parts")
    for number, targets in enumerate(given):
        write(folder / f"{number}.links", targets, 7)
    made = [LinkFile(folder / f"{number}.links") for number in range(len(given))]
    assert [links_in(part) for part in made] == [pairs(targets) for targets in given]
    assert all(part.size == 7 for part in made)
    whole = merge(made, folder / "whole")
    assert links_in(whole) == set().union(*map(pairs, given))
    everything = {name for each in given for name in {*each}.union(*each.values())}
    assert whole.names == len(everything)
    assert len(list(folder.iterdir())) == len(given) + 1


def test_a_merge_in_steps_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of more files than are merged at once, and more links than are in memory."""
    chance, want = random.Random(1), set()
    made = []
    for number in range(11):
        targets: dict[str, set[str]] = {}
        for _ in range(60):
            source, target = (f"com.host{chance.randrange(50):02}" for _ in range(2))
            targets.setdefault(source, set()).add(target)
        want |= pairs(targets)
        write(tmp_path / f"{number}.links", targets)
        made.append(LinkFile(tmp_path / f"{number}.links"))
    monkeypatch.setattr(link_files, "PARTS_AT_ONCE", 3)
    monkeypatch.setattr(link_files, "LINKS_AT_ONCE", 17)
    monkeypatch.setattr(link_files, "NAMES_AT_ONCE", 9)
    monkeypatch.setattr(link_files, "_SAMPLED", 3)
    assert links_in(merge(made, tmp_path / "whole")) == want
    assert len(list(tmp_path.iterdir())) == 12


@pytest.mark.parametrize("most", [1, 3, 1_000])
def test_links_are_gathered_by_page(tmp_path: Path, most: int):
    with Gathered(tmp_path / "a.links", 5, most) as gathered:
        gathered.add("com.a", {"com.b", "com.a"})
        gathered.add("com.c", set())
        gathered.add("com.a", {"com.b", "com.d"})
        gathered.add("com.e", {"com.a"})
        part = gathered.finish()
    assert links_in(part) == {("com.a", "com.b"), ("com.a", "com.d"), ("com.e", "com.a")}
    # A host without links is in it too.
    assert (part.names, part.size) == (5, 5)
    assert [path.name for path in tmp_path.iterdir()] == ["a.links"]


@pytest.mark.parametrize("cut", [0, 10, -1])
def test_a_damaged_file_is_named(tmp_path: Path, cut: int):
    path = tmp_path / "a.links"
    write(path, {"com.a": {"com.b"}})
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(KrowlError, match=r"a\.links is damaged, or of another version: remove it"):
        LinkFile(path)
