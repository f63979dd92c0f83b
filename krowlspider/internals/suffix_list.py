"""The Public Suffix List that is bundled with tldextract.

It is read without importing tldextract: that imports requests and urllib3, and builds two trees of
all rules, together a tenth of the CPU time of a start.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import PurePath
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from importlib.abc import ResourceLoader


def suffix_list() -> str:
    """Return the text of the list, private section included (https://publicsuffix.org/list/)."""
    spec = find_spec("tldextract")
    assert spec is not None
    assert spec.origin is not None
    path = PurePath(spec.origin).with_name(".tld_set_snapshot")
    return cast("ResourceLoader", spec.loader).get_data(str(path)).decode()
