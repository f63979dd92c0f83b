r"""Put the hashes that pip-compile found under the pins of the requirements files.

Run it after a version has changed::

    pip-compile --generate-hashes --allow-unsafe --no-header --no-annotate --no-emit-index-url \
        --no-emit-find-links -o /tmp/pins.txt bench/requirements.txt
    python deploy/pins.py /tmp/pins.txt

Use the oldest Python that is supported: it needs every package that a newer one needs. Comments,
order and versions stay as they are.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = ("requirements.txt", "requirements-dev.txt", "bench/requirements.txt")
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)")
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")


def pins_in(text: str) -> dict[tuple[str, str], list[str]]:
    """Return the hashes by name, as an index compares names, and version."""
    found: dict[tuple[str, str], list[str]] = {}
    hashes: list[str] = []
    for line in text.splitlines():
        if pin := _PIN.match(line):
            name = re.sub(r"[-_.]+", "-", pin[1]).lower()
            hashes = found.setdefault((name, pin[2]), [])
        hashes += _HASH.findall(line)
    return found


def with_hashes(text: str, pins: dict[tuple[str, str], list[str]]) -> str:
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
    compiled = pins_in(Path(sys.argv[1]).read_text())
    for name in FILES:
        path = ROOT / name
        path.write_text(with_hashes(path.read_text(), compiled))
