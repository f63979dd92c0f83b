"""SALSA and HITS around the results of a query, over a real store of links."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from krowlspider.search.documents import IndexedLink
from krowlspider.search.link_store import PAGE, LinkStore, StoredPage, pack
from krowlspider.search.opened import SearchError
from krowlspider.search.query import parse
from krowlspider.search.schema import LINKS, key_of
from krowlspider.search.searcher import Searcher
from tests.search.indexes import Page, index

if TYPE_CHECKING:
    from pathlib import Path

# Pages by host, which all say the same, and the hosts to which each links.
LINKED = {"a": "bc", "b": "c", "d": "c", "e": "c", "f": "f", "c": ""}


@pytest.mark.parametrize("rank", ["salsa", "hits"])
def test_page_with_most_links_around_the_results_is_first(tmp_path: Path, rank: str):
    urls = {name: f"https://{name}.test/" for name in LINKED}
    # Pages d and e are not among the results: they link to some.
    searcher = Searcher(index(tmp_path, [Page(urls[name], "Kiwi", "kiwi") for name in "abcf"]))
    with pytest.raises(SearchError, match=f"--rank {rank}: there are no links"):
        searcher.search(parse("kiwi"), rank=rank)
    with closing(LinkStore(tmp_path / LINKS, make=True)) as store, store.db.write_batch() as batch:
        for name, targets in LINKED.items():
            batch.put(PAGE + key_of(urls[name]), pack(StoredPage(urls[name])))
            store.replace(batch, urls[name], [IndexedLink(urls[each], "x") for each in targets])
        for own in (f"{urls['f']}{number}" for number in range(5)):
            batch.put(PAGE + key_of(own), pack(StoredPage(own)))
            store.replace(batch, own, [IndexedLink(urls["f"], "x")])
    found = searcher.search(parse("kiwi"), rank=rank, explain=True).results
    assert found[0].url == urls["c"]
    assert found[1].url == urls["b"]
    assert {each.url for each in found} == {urls[name] for name in "abcf"}
    assert [name for name, _, _ in found[0].parts[:3]] == ["text", "size", "links"]
    # Nobody but its own host links to f.
    parts = {each.url: {name: about for name, _, about in each.parts} for each in found}
    assert parts[urls["f"]]["links"] == "authority 0"
    assert not [*tmp_path.glob("links-*")]
