"""An entry and its redirect chain survive their encoding on disk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from krowlspider.frontier.entry import HOPS_MAX, Entry

PLACES = st.sampled_from(
    [
        "http://a.test/",
        "https://a.test/x?y",
        "https://a.test:8080/",
        "http://b.test/0/1",
        "https://a.test.b/",
    ]
)


def again(entry: Entry) -> Entry:
    return Entry.decode(entry.encode("a.test"), "a.test")


ENTRIES = st.builds(
    Entry,
    PLACES,
    depth=st.integers(0, 0x7FFF),
    redirects=st.integers(0, 0xFF),
    due=st.sampled_from([0.0, 7.5]),
    request=st.sampled_from([b"", b"J{}"]),
    chain=st.lists(PLACES, max_size=4).map(tuple),
    seed=st.just(b"") | st.binary(min_size=6, max_size=6),
    state=st.sampled_from(["", '{"a":[1,"L0/x ü"]}', "7"]),
)


@given(ENTRIES, st.just(("", "")) | st.tuples(PLACES, st.text("LMREP", max_size=HOPS_MAX)))
def test_decode_returns_every_field_of_an_entry(entry: Entry, led: tuple[str, str]) -> None:
    entry.via, entry.path = led
    copy = again(entry)
    assert [getattr(copy, name) for name in Entry.__slots__] == [
        getattr(entry, name) for name in Entry.__slots__
    ]


@pytest.mark.parametrize(
    ("path", "depth", "expected"),
    [
        ("", 0, ""),
        ("", 3, ""),
        ("R", 0, "R"),
        ("LRLE", 2, "LRLE"),
        ("PMMR", 1, "PMMR"),
        ("PMML", 5, "3+PMML"),
        ("L" * HOPS_MAX, 60, "10+" + "L" * HOPS_MAX),
    ],
)
def test_links_before_the_kept_path_are_counted(path: str, depth: int, expected: str) -> None:
    assert Entry("http://a.test/", depth, path=path).hops_from_seed == expected


def test_an_entry_of_an_older_release_has_its_last_hop() -> None:
    entry = Entry.decode(bytes.fromhex("80 0002 0005") + b"L0/up/p", "a.test")
    assert (entry.url, entry.via, entry.hops_from_seed) == (
        "http://a.test/p",
        "http://a.test/up",
        "1+L",
    )


def test_the_format_of_an_entry_without_a_chain_is_fixed() -> None:
    data = bytes.fromhex("17 0003 02010000 4031800000000000") + b"/p"
    entry = Entry.decode(data, "a.test")
    expected = Entry("https://a.test/p", 3, 2, 1, due=17.5, bare=True)
    assert [getattr(entry, name) for name in Entry.__slots__] == [
        getattr(expected, name) for name in Entry.__slots__
    ]
    assert expected.encode("a.test") == data


@pytest.mark.parametrize("hops", [1, 10])
def test_a_chain_on_the_own_host_takes_two_bytes_a_hop(hops: int) -> None:
    plain = Entry("https://a.test/end", redirects=hops)
    chained = structs.replace(plain, chain=tuple(f"http://a.test/{hop}" for hop in range(hops)))
    assert len(chained.encode("a.test")) == len(plain.encode("a.test")) + 4 + hops * (2 + 2) - 1


EDGE_CASES = [
    Entry("http://a.test/"),
    Entry("https://a.test/\u00e9?q=1", 3, bare=True),
    Entry("http://a.test/x", 70000, 2, 1, 4, 2, 17.5, bare=True, request=b"J{}"),
    Entry("http://a.test/x", retries=300),
    # The host of a key has neither a root dot nor user info.
    Entry("http://a.test./x", due=1.0),
    Entry("https://me:secret@a.test/x", request=b"J"),
    Entry("http://a.test:8080/x"),
]


@pytest.mark.parametrize("entry", EDGE_CASES, ids=lambda entry: entry.url)
def test_decode_caps_counts_and_keeps_other_fields(entry: Entry) -> None:
    again = Entry.decode(entry.encode("a.test"), "a.test")
    capped = structs.replace(entry, depth=min(entry.depth, 32_767), retries=min(entry.retries, 255))
    assert [getattr(again, name) for name in Entry.__slots__] == [
        getattr(capped, name) for name in Entry.__slots__
    ]


def test_an_ordinary_entry_takes_three_bytes_beside_its_path() -> None:
    assert len(Entry("https://a.test/page", 3).encode("a.test")) == 3 + len("/page")
    assert Entry.decode(Entry("http://b.test/").encode("a.test"), "a.test").url == "http://b.test/"
