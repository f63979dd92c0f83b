r"""Put the hashes of the wheels of supported platforms under the pins of the requirements files.

Run it after a version has changed, with a recent pip; it takes some minutes::

    pip-compile --generate-hashes --allow-unsafe --no-header --no-annotate --no-emit-index-url \
        --no-emit-find-links -o /tmp/pins.txt bench/requirements.txt
    python deploy/pins.py /tmp/pins.txt

Use the oldest Python that is supported: it needs every package that a newer one needs. Comments,
order and versions stay as they are. pip-compile finds the hashes of all files, and pip says which
of them it takes on each platform. A package without a wheel for one of them keeps all its files.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from packaging.markers import Marker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).parents[1]
FILES = (
    "requirements.txt",
    "requirements-dev.txt",
    "bench/requirements.txt",
    "tests/mcp-requirements.txt",
)
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
# The oldest glibc first: a wheel that needs it runs with each later one.
_LINUXES = (
    "manylinux1",
    "manylinux2010",
    "manylinux2014",
    *(f"manylinux_2_{n}" for n in range(17, 41)),
)
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)(?: ; ([^\\\n]+))?")
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")
_NO_WHEEL = re.compile(r"No matching distribution found for ([A-Za-z0-9._-]+)==(\S+)")


class Pin(NamedTuple):
    """A package by its name, as an index compares names, and its version."""

    name: str
    version: str


class Platform(NamedTuple):
    python: str
    machine: str


def pin_of(name: str, version: str) -> Pin:
    return Pin(re.sub(r"[-_.]+", "-", name).lower(), version)


def pins_in(text: str) -> dict[Pin, list[str]]:
    """Return the hashes of each pin."""
    found: dict[Pin, list[str]] = {}
    hashes: list[str] = []
    for line in text.splitlines():
        if match := _PIN.match(line):
            hashes = found.setdefault(pin_of(match[1], match[2]), [])
        hashes += _HASH.findall(line)
    return found


def markers_in(text: str) -> dict[Pin, str]:
    """Return the marker of each pin that has one."""
    found = map(_PIN.match, text.splitlines())
    return {pin_of(each[1], each[2]): each[3].strip() for each in found if each and each[3]}


def taken(
    pins: dict[Pin, list[str]],
    markers: dict[Pin, str],
    ask: Callable[[Platform, list[Pin]], dict[Pin, str] | Pin],
) -> dict[Pin, list[str]]:
    """Return the hashes that are taken on some platform, for each pin in order.

    ``ask`` returns the hash of the wheel of each pin on a platform, or a pin that has none there.
    """
    wheels: dict[Pin, set[str]] = {pin: set() for pin in pins}
    without: set[Pin] = set()
    for platform in map(Platform._make, product(PYTHONS, MACHINES)):
        version = {"python_version": platform.python, "python_full_version": platform.python + ".0"}
        wanted = [
            pin for pin in pins if pin not in markers or Marker(markers[pin]).evaluate(version)
        ]
        while isinstance(
            found := ask(platform, [pin for pin in wanted if pin not in without]), Pin
        ):
            without.add(found)
        for pin, its in found.items():
            wheels[pin].add(its)
    return {
        pin: [each for each in hashes if pin in without or each in wheels[pin]]
        for pin, hashes in pins.items()
    }


def ask_pip(platform: Platform, pins: Iterable[Pin]) -> dict[Pin, str] | Pin:
    """Have pip say what it takes, as ``ask`` of `taken`. It installs nothing."""
    with TemporaryDirectory() as folder:
        listed, report = Path(folder) / "pins.txt", Path(folder) / "report.json"
        listed.write_text("".join(f"{pin.name}=={pin.version}\n" for pin in pins))
        ended = subprocess.run(  # noqa: S603 - its words are pins and flags
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps"),
                *("--ignore-installed", "--only-binary", ":all:", "--target", folder),
                *("--implementation", "cp", "--python-version", platform.python),
                *(f"--platform={linux}_{platform.machine}" for linux in _LINUXES),
                *("--report", str(report), "-r", str(listed)),
            ],
            # Files that somebody has built are not those of the index.
            env={name: value for name, value in os.environ.items() if name != "PIP_FIND_LINKS"},
            check=False,
            capture_output=True,
            text=True,
        )
        if missing := _NO_WHEEL.search(ended.stderr):
            return pin_of(missing[1], missing[2])
        if ended.returncode:
            sys.exit(ended.stderr)
        files = json.loads(report.read_text())["install"]
    return {
        pin_of(each["metadata"]["name"], each["metadata"]["version"]): "sha256:"
        + each["download_info"]["archive_info"]["hashes"]["sha256"]
        for each in files
    }


def with_hashes(text: str, pins: dict[Pin, list[str]]) -> str:
    """Return a requirements file with the hashes of ``pins``.

    :raises KeyError: a pin has no hashes; the key is its name and version
    """
    lines = []
    for line in text.splitlines():
        if line.lstrip().startswith("--hash="):
            continue
        bare = line.removesuffix("\\").rstrip()
        hashes = [f"--hash={each}" for pin in pins_in(bare) for each in pins[pin]]
        lines.append(" \\\n    ".join([bare, *hashes]))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    texts = {ROOT / name: (ROOT / name).read_text() for name in FILES}
    together = "".join(texts.values())
    compiled = pins_in(Path(sys.argv[1]).read_text())
    kept = taken({pin: compiled[pin] for pin in pins_in(together)}, markers_in(together), ask_pip)
    for path, text in texts.items():
        path.write_text(with_hashes(text, kept))
