"""What ``-a seeds=`` gives: a file of seeds, or the seeds themselves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.errors import SeedsError
from krowlspider.frontier.seed_table import SeedLine
from krowlspider.spiders.seeds_file import SeedsFile, in_chunks
from krowlspider.urls.seeds import BadSeed, parse_seed, without_credentials
from krowlspider.urls.seeds_given import is_file_name, way_out

if TYPE_CHECKING:
    from collections.abc import Iterator


class SeedList:
    """Seeds that are given with commas between them. ``good`` and ``bad`` count as `SeedsFile`'s.

    :raises SeedsError: a part of the text is no seed, or there is none
    """

    source = "the command line"
    bad = 0

    def __init__(self, text: str):
        self._parts = text.split(",")
        shown = ",".join(map(without_credentials, self._parts))[:200]
        try:
            seeds = [parse_seed(part.encode(errors="surrogateescape")) for part in self._parts]
        except BadSeed as error:
            raise SeedsError(
                f"-a seeds={shown!r}: {error}; give a file, or URLs and domains with commas"
                " between them (%2C is a comma in a URL)"
            ) from error
        self.name = f"-a seeds={shown}"
        self._lines = [
            SeedLine(number, without_credentials(part.strip()), seed.url, bare=seed.bare)
            for number, (part, seed) in enumerate(zip(self._parts, seeds, strict=True), 1)
            if seed is not None
        ]
        self.good = len(self._lines)
        if not self.good:
            raise SeedsError(f"-a seeds={shown!r} has no seed: give a file, a URL or a domain")

    def text(self) -> tuple[bytes, bool]:
        """Return the seeds one a line, as `SeedsFile.text` does."""
        return "".join(f"{part.strip()}\n" for part in self._parts).encode(
            errors="surrogateescape"
        ), False

    def chunks(self) -> Iterator[list[SeedLine]]:
        """Yield chunks as `SeedsFile.chunks` does."""
        return in_chunks(iter(self._lines))


def seeds_of(given: str) -> SeedsFile | SeedList:
    """Return the seeds in the file at ``given``, or those that ``given`` lists.

    A file that exists wins. Text with a scheme, or of domains only, is a list.

    :raises SeedsError: there is neither
    """
    if not given.strip():
        raise SeedsError("-a seeds= is empty: give a file, or URLs and domains")
    # Path.exists() raises for a list that is a long name.
    exists = os.path.exists(given)  # noqa: PTH110
    if not (exists or is_file_name(given)):
        return SeedList(given)
    try:
        return SeedsFile(Path(given))
    except SeedsError as error:
        if exists or not (way := way_out(given)):
            raise
        raise SeedsError(f"{error}{way}") from error
