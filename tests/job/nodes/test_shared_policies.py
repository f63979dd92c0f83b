"""The sheets of all nodes are those of the newest order."""

from __future__ import annotations

import logging
import os
from random import Random
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.membership import UnansweredError
from krowlspider.job.nodes.shared_policies import AGAIN, HEAD, PIECE, SharedPolicies
from krowlspider.job.site_policies import SitePolicies
from tests.cluster.memory_keys import MemoryKeys

if TYPE_CHECKING:
    from pathlib import Path

SHEET = '[[sheet]]\nname = "{0}"\nmatch = ["a.test"]\ndepth = {0}\n'


class Node:
    """A node with a file of its own, which was written at ``written``."""

    def __init__(self, folder: Path, keys: MemoryKeys, name: str, number: int, written: float):
        self.path = folder / name / "policies.toml"
        self.path.parent.mkdir()
        self.path.write_text(SHEET.format(number))
        os.utime(self.path, (written, written))
        self.now = written
        self.policies = SitePolicies(self.path)
        self.shared = SharedPolicies(keys, self.policies, name, lambda: self.now)

    def order(self, text: str, now: float) -> None:
        """Do what `SitePolicies.watch` does with a new version of the file."""
        version = self.policies.parse(text.encode())
        self.now = now
        assert self.policies.on_order is not None
        self.policies.on_order(version)
        self.policies.use(version)

    @property
    def depth(self) -> int | None:
        found = self.policies.of("a.test")
        return None if found is None else found.fixed.depth


async def agree(*nodes: Node) -> list[int | None]:
    for _ in range(2):
        for node in nodes:
            await node.shared.agree()
    return [node.depth for node in nodes]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
async def test_the_newest_file_of_the_start_wins(
    tmp_path: Path, order: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    keys = MemoryKeys()
    nodes = [Node(tmp_path, keys, f"n{at}", at, 100.0 + at) for at in range(3)]
    with caplog.at_level(logging.INFO):
        assert await agree(*(nodes[at] for at in order)) == [2, 2, 2]
    # Only the text that is in force stays.
    assert len(keys.values) == 2


async def test_a_node_with_an_older_file_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = MemoryKeys()
    await agree(Node(tmp_path, keys, "a", 1, 200.0))
    assert await agree(Node(tmp_path, keys, "b", 2, 100.0)) == [1]
    assert "the file of this node is older than the sheets that node a has given" in caplog.text


async def test_an_order_of_any_node_holds_at_all(tmp_path: Path) -> None:
    """Also one that gives an older text again."""
    keys = MemoryKeys()
    nodes = [Node(tmp_path, keys, name, 1, 100.0) for name in "abc"]
    await agree(*nodes)
    nodes[1].order(SHEET.format(7), 300.0)
    assert await agree(*nodes) == [7, 7, 7]
    nodes[2].order(SHEET.format(1), 400.0)
    assert await agree(*nodes) == [1, 1, 1]
    late = Node(tmp_path, keys, "d", 9, 350.0)
    assert await agree(late, *nodes) == [1, 1, 1, 1]


async def test_an_order_outlives_an_outage(tmp_path: Path) -> None:
    keys = MemoryKeys()
    nodes = [Node(tmp_path, keys, name, 1, 100.0) for name in "ab"]
    await agree(*nodes)
    keys.answers = False
    nodes[0].order(SHEET.format(5), 200.0)
    with pytest.raises(UnansweredError):
        await nodes[0].shared.agree()
    keys.answers = True
    assert await agree(*nodes) == [5, 5]


async def test_a_large_text_goes_in_pieces(tmp_path: Path) -> None:
    keys = MemoryKeys()
    nodes = [Node(tmp_path, keys, name, 1, 100.0) for name in "ab"]
    await agree(*nodes)
    text = SHEET.format(3) + f"# {Random(1).randbytes(2 * PIECE).hex()}\n"
    nodes[0].order(text, 200.0)
    assert await agree(*nodes) == [3, 3]
    assert len(keys.values) == 4
    assert all(len(value) <= PIECE for value in keys.values.values())


async def test_sheets_whose_file_is_missing_here_are_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then the sheets before them hold, and log and state say so."""
    keys = MemoryKeys()
    a, b = (Node(tmp_path, keys, name, 1, 100.0) for name in "ab")
    await agree(a, b)
    (tmp_path / "a" / "auth").write_text("user:password")
    a.order(SHEET.format(3) + 'auth = "auth"\n', 200.0)
    b.now = 200.0
    assert await agree(a, b) == [3, 1]
    missing = tmp_path / "b" / "auth"
    assert b.policies.state() == (
        f"not in force: the sheets of the cluster, given by node a: {b.path} line 5: auth:"
        f" {missing} cannot be read: No such file or directory"
    )
    missing.write_text("user:password")
    for b.now, depth in ((200.0 + AGAIN - 1, 1), (200.0 + AGAIN, 3)):
        assert await agree(b) == [depth]
    assert b.policies.state().endswith(" in force")
    assert b.policies.fault == ""
    assert caplog.text.count("are not in force here") == b.policies.failed_count == 1


async def test_an_order_that_can_be_used_ends_the_fault(tmp_path: Path) -> None:
    """That of sheets that are in force here already, and that of the node's own file."""
    keys = MemoryKeys()
    a, b = (Node(tmp_path, keys, name, 1, 100.0) for name in "ab")
    await agree(a, b)
    (tmp_path / "a" / "auth").write_text("user:password")
    for time, (node, text) in enumerate([(a, SHEET.format(1)), (b, SHEET.format(2))]):
        a.order(SHEET.format(3) + 'auth = "auth"\n', 200.0 + 2 * time)
        await agree(a, b)
        assert b.policies.fault != ""
        node.order(text, 201.0 + 2 * time)
        assert await agree(a, b) == [time + 1] * 2
        assert b.policies.fault == ""


@pytest.mark.parametrize("damage", ["head", "text", "checksum", "missing"])
async def test_a_damaged_text_leaves_the_sheets(tmp_path: Path, damage: str) -> None:
    keys = MemoryKeys()
    nodes = [Node(tmp_path, keys, name, 1, 100.0) for name in "ab"]
    await agree(*nodes)
    nodes[0].order(SHEET.format(3), 200.0)
    await nodes[0].shared.agree()
    (piece,) = keys.values.keys() - {HEAD}
    if damage == "head":
        keys.values[HEAD] = "{"
    elif damage == "text":
        keys.values[piece] = b"\0" * 9
    elif damage == "checksum":
        keys.values[HEAD] = str(keys.values[HEAD], "utf-8").replace('"digest":"', '"digest":"0')
        keys.values[f"0{piece}"] = keys.values[piece]
    else:
        del keys.values[piece]
    await nodes[1].shared.agree()
    assert nodes[1].depth == 1
    # Without its head nothing tells of it, and a text that is missing has a newer order.
    assert bool(nodes[1].policies.fault) == (damage in {"text", "checksum"})
