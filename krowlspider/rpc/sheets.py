"""Sheets that clients write into the file of KROWL_POLICIES, beside those of people.

Each has a block of its own between two comments. All other lines of the file stay as they are.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from krowlspider.archive.disk import write_durably
from krowlspider.errors import KrowlError
from krowlspider.job.site_policies import SIZE_MAX
from krowlspider.policies.sheets import Policies
from krowlspider.policies.tables import SHEET, as_toml
from krowlspider.urls.seeds import ordered_host

if TYPE_CHECKING:
    from collections.abc import Mapping

# Keys that no client sets by themselves.
_FIXED = {"name", "match"}
_BEGIN, _END = "# --- by UpsertDomainPolicy: {}\n", "# --- end\n"


class SheetFile:
    """The file at ``path``. ``delay_min`` is KROWL_DELAY_MIN. Its calls block on the disk."""

    def __init__(self, path: str, delay_min: float):
        self._path = Path(path)
        self._delay_min = delay_min
        self._turn = Lock()

    def put(self, domain: str, keys: Mapping[str, Any]) -> tuple[bool, str]:
        """Put these keys into the sheet of a domain, whose other keys stay; without any keys,
        remove the sheet. Return whether the file has changed, and what the sheet has then.

        :raises KrowlError: the file cannot be read or written, or would have an error
        """
        # A call may end before its thread does: the next one must read what that has written.
        with self._turn:
            text, said = self._changed(domain, keys)
            return self._write(text), said

    def _changed(self, domain: str, keys: Mapping[str, Any]) -> tuple[str, str]:
        text = self._read()
        try:
            domain = ordered_host(domain)
        except ValueError as error:
            raise KrowlError(f"domain: {error}") from error
        begin = _BEGIN.format(domain)
        block = re.compile(f"^{re.escape(begin)}(.*?)^{_END}", re.DOTALL | re.MULTILINE)
        found = block.search(text)
        known = dict(tomllib.loads(found[1])["sheet"][0]) if found and keys else {}
        known |= {"name": f"UpsertDomainPolicy {domain}", "match": [domain], **keys}
        said = ", ".join(f"{key} = {as_toml(known[key])}" for key in known if key not in _FIXED)
        rest = text if found is None else text[: found.start()] + text[found.end() :]
        if not keys:
            return rest, ""
        lines = [SHEET, *(f"{key} = {as_toml(value)}" for key, value in known.items())]
        sheet = "\n".join(lines) + "\n"
        # Its errors are those of a sheet that the client has not seen in the file.
        Policies.parse(sheet, f"sheet of {domain}", delay_min=self._delay_min)
        line_end = "" if not rest or rest.endswith("\n") else "\n"
        whole = f"{rest}{line_end}{begin}{sheet}{_END}"
        if len(whole.encode()) > SIZE_MAX:
            raise KrowlError(f"{self._path} would have more than {SIZE_MAX:,} bytes")
        Policies.parse(whole, str(self._path), delay_min=self._delay_min)
        return whole, said

    def _write(self, text: str) -> bool:
        """Replace the file, if it has another text; return whether it had."""
        if text == self._read():
            return False
        path = self._path.resolve()
        try:
            with write_durably(path) as draft:
                os.fchmod(draft.fileno(), path.stat().st_mode)
                draft.write(text.encode())
        except OSError as error:
            raise KrowlError(f"{self._path} cannot be written: {error.strerror}") from error
        return True

    def _read(self) -> str:
        try:
            return self._path.read_bytes().decode()
        except OSError as error:
            raise KrowlError(f"{self._path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise KrowlError(f"{self._path} is not UTF-8") from error
