"""The rows of `krowlspider.settings`, and the checks of all settings."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin

from scrapy.settings import BaseSettings, default_settings

from krowlspider import settings
from krowlspider.config.kinds import BYTES, Number, boolean, parsed

if TYPE_CHECKING:
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
