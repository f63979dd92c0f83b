"""Values as people write them: sizes with units, lists with blanks, mappings as JSON."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

from scrapy.settings import BaseSettings

from krowlspider.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,3})?) ?([kmgt])(i?)b", re.ASCII | re.IGNORECASE)


def read_sizes(settings: BaseSettings, names: Iterable[str]) -> None:
    """Replace the text of a size with a unit (``2GB``, ``512 MiB``) by its number of bytes.

    Any other value stays as it is.
    """
    for name in names:
        value = settings.get(name)
        if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
            number, prefix, binary = match.groups()
            unit = (1024 if binary else 1000) ** ("kmgt".index(prefix.lower()) + 1)
            settings.set(name, int(Decimal(number) * unit), settings.getpriority(name) or 0)


def read_lists(settings: BaseSettings, names: Iterable[str]) -> None:
    """Remove the blanks and the empty parts of lists that are given as text with commas."""
    for name in names:
        value = settings.get(name)
        if isinstance(value, str):
            parts = (part.strip() for part in value.split(","))
            plain = ",".join(part for part in parts if part)
            if plain != value:
                settings.set(name, plain, settings.getpriority(name) or 0)


def check_mappings(settings: BaseSettings, given: Mapping[str, object]) -> None:
    """Check values that are about to be set. Scrapy's error for a mapping does not name it.

    :raises SettingsError: a value is not a mapping, and its setting is one
    """
    for name, value in given.items():
        if isinstance(settings[name], BaseSettings):
            try:
                BaseSettings(value)  # type: ignore[arg-type]
            except (TypeError, ValueError) as error:
                raise SettingsError(
                    f"{name}={value!r} is not a mapping; on the command line give it as JSON"
                ) from error
