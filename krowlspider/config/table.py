"""The settings with a check, and their values as people write them: sizes, lists, mappings."""

from __future__ import annotations

import re
from decimal import Decimal
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin

from scrapy.settings import BaseSettings, default_settings

from krowlspider import settings
from krowlspider.config.kinds import BYTES, Number, boolean, parsed
from krowlspider.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from krowlspider.config.kinds import Checker


class Row(NamedTuple):
    """A setting with a check. ``unit`` is "" for one that is no number; ``may_be_none`` says that
    None is valid: there is no such file, folder or place."""

    check: Checker
    unit: str
    is_list: bool
    may_be_none: bool


def _row(hint: Any) -> Row:
    kind, check = get_args(hint) if get_origin(hint) is Annotated else (hint, boolean)
    unit = check.unit if isinstance(check, Number) else ""
    return Row(check, unit, get_origin(kind) is list, NoneType in get_args(kind))


ROWS = {name: _row(hint) for name, hint in settings.__annotations__.items()}
KNOWN = frozenset(name for name in ROWS if name.startswith("KROWL_"))
# Settings in bytes: they may be text with a unit.
SIZES = frozenset(name for name, row in ROWS.items() if row.unit == BYTES)
# Settings of the project that are lists: they may be text with commas.
LISTS = frozenset(name for name in KNOWN if ROWS[name].is_list)
# Scrapy names neither the setting nor its value when it reads one of another type.
_OF_TYPE: dict[type, Checker] = {
    bool: boolean,
    int: parsed(bool, "is not a whole number", BaseSettings.getint),
    float: parsed(bool, "is not a number", BaseSettings.getfloat),
}
# Scrapy's settings that need no more than the type of their default. None is valid.
SCRAPYS: dict[str, Checker] = {
    name: _OF_TYPE[type(value)]
    for name, value in vars(default_settings).items()
    if name.isupper() and type(value) in _OF_TYPE and name not in ROWS
}
SCRAPYS |= {"DNS_TIMEOUT": _OF_TYPE[float], "TELNETCONSOLE_ENABLED": boolean}
CHECKERS = {name: row.check for name, row in ROWS.items()} | SCRAPYS


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
