"""What make installs is what was looked at: each file by its hash."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from deploy.pins import (
    FILES,
    MACHINES,
    PYTHONS,
    Pin,
    Platform,
    markers_in,
    pins_in,
    taken,
    with_hashes,
)
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PINNED = [ROOT / name for name in FILES]


@pytest.mark.parametrize("path", PINNED, ids=FILES)
def test_every_requirement_has_its_hashes_and_no_index(path: Path) -> None:
    text = path.read_text()
    pins = pins_in(text)
    assert len(pins) > 5
    assert all(pins.values())
    rest = re.sub(r" \\\n    --hash=sha256:[0-9a-f]{64}", "", text)
    lines = [line for line in rest.splitlines() if line and line[0] != "#"]
    assert all(re.fullmatch(r"-r [a-z./-]+|[\w.-]+==[\w.]+( ; .+)?", line) for line in lines)


def test_make_installs_nothing_without_a_hash() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (definition,) = [line for line in makefile.splitlines() if "pip install" in line]
    assert definition.startswith("PIP_INSTALL =")
    assert "--require-hashes" in definition
    # One is of `make fuzz`; the file of the MCP client is installed by its test.
    assert makefile.count("$(PIP_INSTALL) ") == len(FILES) - 1 + 1


def test_renewed_hashes_leave_all_else_as_it_was() -> None:
    one, two = "sha256:" + "1" * 64, "sha256:" + "2" * 64
    text = f"# A comment.\n-r other.txt\n\nPy_A.b==1.0 ; x \\\n    --hash={one}\n# Another.\nc==2\n"
    compiled = f"c==2 \\\n    --hash={one}\npy-a-b==1.0 \\\n    --hash={one} \\\n    --hash={two}\n"
    renewed = with_hashes(text, pins_in(compiled))
    assert pins_in(renewed) == pins_in(compiled)
    assert re.sub(r" \\\n    --hash=\S+", "", renewed) == re.sub(r" \\\n    --hash=\S+", "", text)
    with pytest.raises(KeyError, match="c"):
        with_hashes(text, pins_in(compiled[70:]))


def test_a_pin_keeps_what_supported_platforms_take() -> None:
    wheel, plain, partly, old = (Pin(name, "1") for name in ("wheel", "plain", "partly", "old"))
    text = 'wheel==1\nPlain==1\npartly==1\nold==1 ; python_version < "3.12"\n'
    hashes = {
        wheel: ["a", "b", "c", "of another platform"],
        plain: ["p"],
        partly: ["x86", "source"],
        old: ["o"],
    }
    asked: list[tuple[Platform, list[Pin]]] = []

    def ask(platform: Platform, pins: list[Pin]) -> dict[Pin, str] | Pin:
        asked.append((platform, pins))
        if partly in pins and platform.machine == "aarch64":
            return partly
        files = {wheel: "a" if platform.machine == "x86_64" else "b", plain: "p"}
        if platform.python == "3.14":
            files[wheel] = "c"
        return {pin: files.get(pin, "x86" if pin == partly else "o") for pin in pins}

    assert taken(hashes, markers_in(text), ask) == {
        wheel: ["a", "b", "c"],
        plain: ["p"],
        # It has no wheel for one platform, so pip may take its source.
        partly: ["x86", "source"],
        old: ["o"],
    }
    assert {each for each, _ in asked} == {Platform(p, m) for p in PYTHONS for m in MACHINES}
    assert all((old in pins) == (platform.python == "3.11") for platform, pins in asked)


@pytest.mark.parametrize("path", PINNED, ids=FILES)
def test_no_requirement_has_hashes_of_other_platforms(path: Path) -> None:
    # Those without a wheel for each platform have all files.
    partly = {"jwm-robotstxt", "plyvel", "pycld2", "surt"}
    most = len(PYTHONS) * len(MACHINES)
    counts = {pin.name: len(hashes) for pin, hashes in pins_in(path.read_text()).items()}
    assert [name for name, count in counts.items() if count > most and name not in partly] == []
