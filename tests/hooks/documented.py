"""The classes of docs/hooks.md."""

from __future__ import annotations

import re

from tests.support.crawling import ROOT

for _block in re.findall(
    r"^```python\n(.*?)^```$", (ROOT / "docs/hooks.md").read_text(), re.DOTALL | re.MULTILINE
):
    exec(_block)
