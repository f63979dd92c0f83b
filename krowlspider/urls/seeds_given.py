"""Tell a file of seeds from seeds with commas between them.

The Makefile asks this before anything is installed: it needs the standard library alone.
"""

from __future__ import annotations

import re

# Endings of files that are no top-level domains.
_FILES = (".csv", ".gz", ".json", ".jsonl", ".list", ".lst", ".tsv", ".txt", ".urls")
_HOST_AND_PATH = re.compile(r"[\w-]+(\.[\w-]+)+(:\d+)?/")


def is_file_name(given: str) -> bool:
    """Return whether a text is the name of a file, also of one that does not exist."""
    if "://" in given:
        return False
    # One word without a dot is no domain, so it was meant as a file.
    word = "," not in given and "." not in given.strip(".") and given != "localhost"
    return word or "/" in given or given.endswith(_FILES)


def way_out(given: str) -> str:
    """Return what to do about the name of a file that does not exist; "" if nothing is known."""
    if _HOST_AND_PATH.match(given):
        return "; a URL with a path begins with https:// or http://"
    return ""
