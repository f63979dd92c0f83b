"""Read paths of HTML files, one a line; write the text of each and its CPU seconds as JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import trafilatura

for name in sys.stdin.read().splitlines():
    html = Path(name).read_bytes()
    start = time.process_time()
    text = trafilatura.extract(html, include_comments=False)
    print(json.dumps([text or "", time.process_time() - start]))
