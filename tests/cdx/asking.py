"""Ask an archive of the samples of pywb and others: index files alone, without WARC files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.cdx.archives import Archives
from krowlspider.cdx.pace import ClientWork
from krowlspider.cdx.query import Dialect
from krowlspider.cdx.responses import answer, read

if TYPE_CHECKING:
    from collections.abc import Iterable

SAMPLES = Path(__file__).parent / "samples"
PYWB, OUTBACK = Dialect.PYWB, Dialect.OUTBACK
Parameter = str | int | bool | tuple[str, ...]


def samples(folder: Path, *names: str) -> Archives:
    """An archive of some of the samples; of all without names."""
    folder.mkdir()
    for name in names or [path.stem for path in SAMPLES.iterdir()]:
        shutil.copy(SAMPLES / f"{name}.cdxj", folder)
    return Archives([folder])


def text_of(
    archives: Archives, dialect: Dialect = PYWB, filters: Iterable[str] = (), **given: object
) -> str:
    """The whole answer. ``from_`` is the parameter ``from``."""
    parameters = {name.rstrip("_"): str(value) for name, value in given.items()}
    query = read(parameters, [*filters], dialect)
    return b"".join(answer(archives, query, ClientWork()).pieces).decode()


def lines_of(
    archives: Archives, dialect: Dialect = PYWB, filters: Iterable[str] = (), **given: object
) -> list[str]:
    return text_of(archives, dialect, filters, **given).splitlines()
