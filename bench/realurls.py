"""URLs that people have written: those in packages of this machine."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path
from urllib.parse import urlsplit

from krowlspider.urls.canonical import normalise

_URL = re.compile(rb"https?://[A-Za-z0-9.-]+\.[A-Za-z]{2,}[^\s\"'<>)\]}\\`]*")


def real_urls() -> list[str]:
    """Return the normalised URLs in the Python packages of this environment and in Debian's package
    lists."""
    found: set[bytes] = set()
    for path in Path(sysconfig.get_path("purelib")).rglob("*"):
        if path.suffix in {"", ".py", ".txt", ".rst", ".md"} and path.is_file():
            found.update(_URL.findall(path.read_bytes()))
    for path in Path("/var/lib/apt/lists").glob("*Packages*"):
        listed = subprocess.run(
            ["/usr/lib/apt/apt-helper", "cat-file", path], capture_output=True, check=True
        )
        found.update(_URL.findall(listed.stdout))
    normal = (normalise(url.decode("ascii", "ignore")) for url in found)
    return sorted({url for url in normal if url and urlsplit(url).hostname})
