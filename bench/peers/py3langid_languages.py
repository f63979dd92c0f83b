"""Read texts as JSON, one a line; write the language of each."""

from __future__ import annotations

import json
import sys

import py3langid

for line in sys.stdin:
    print(py3langid.classify(json.loads(line))[0])
