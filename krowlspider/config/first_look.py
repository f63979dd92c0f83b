"""``make crawl`` looks at SEEDS and CONTACT before it installs anything.

This needs a Python of 3.11 or later, and its standard library alone.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from krowlspider.config.contact import contact_fault
from krowlspider.urls.seeds_given import is_file_name, way_out


def faults(seeds: str, contact: str) -> list[str]:
    """Return a line for each that the crawl would refuse at its start."""
    found = [_seeds_fault(seeds)]
    if fault := contact_fault(contact):
        found.append(f"CONTACT={contact!r} {fault}")
    return [fault for fault in found if fault]


def _seeds_fault(given: str) -> str:
    exists = os.path.exists(given)  # noqa: PTH110 - Path.exists() raises for a long list
    if not (exists or is_file_name(given)):
        return ""
    # It may be a pipe, of which nothing may be read here.
    if not exists:
        return f"SEEDS={given!r}: there is no such file{way_out(given)}"
    if Path(given).is_dir():
        return f"SEEDS={given!r} is a folder: give a file"
    return "" if os.access(given, os.R_OK) else f"SEEDS={given!r} cannot be read"


def main() -> int:
    """Print the faults of what the environment has, and return the exit code."""
    found = faults(os.environ["SEEDS"], os.environ["CONTACT"])
    for fault in found:
        print(f"make crawl: {fault}", file=sys.stderr)
    return 2 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
