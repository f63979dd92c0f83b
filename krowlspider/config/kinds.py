"""Kinds of checks, of which `krowlspider.settings` gives each setting one.

A checker returns the fault of the named setting, to be read after its name and value, or None.
Values are typed, or text from the command line. None was refused before.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, TypeAlias

from scrapy.settings import BaseSettings

Checker: TypeAlias = Callable[[BaseSettings, str], str | None]

# The unit of settings that may be text with a unit, such as 2GB.
BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Number:
    """Checks that a value is a finite number of ``unit`` from ``low`` to ``high``.

    With ``above``, ``low`` itself is excluded; with ``whole``, numbers with a fraction are.
    """

    unit: str
    low: float = 0
    high: float = inf
    above: bool = False
    whole: bool = False

    def __call__(self, settings: BaseSettings, name: str) -> str | None:
        try:
            value = settings.getfloat(name)
            if self.whole and settings.getint(name) != value:
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            kind = "whole number" if self.whole else "number"
            return f"is not a {kind} of {self.unit}{self._example}"
        too_low = value <= self.low if self.above else value < self.low
        if isfinite(value) and not too_low and value <= self.high:
            return None
        return f"is out of range: {self._span}{self._example}"

    @property
    def _span(self) -> str:
        span = f"more than {self.low:g}" if self.above else f"{self.low:g} or more"
        return span + (f", at most {self.high:g}" if isfinite(self.high) else "") + f" {self.unit}"

    @property
    def _example(self) -> str:
        return ", such as 2000000000, 2GB or 512MiB" if self.unit == BYTES else ""


def number(low: float, unit: str, *, high: float = inf, above: bool = False) -> Number:
    return Number(unit, low, high, above)


def integer(low: int, unit: str, *, high: float = inf) -> Number:
    return Number(unit, low, high, whole=True)


def seconds(*, above: bool = False, high: float = inf) -> Number:
    return Number("seconds", high=high, above=above)


def size(low: int) -> Number:
    return Number(BYTES, low, whole=True)


def boolean(settings: BaseSettings, name: str) -> str | None:
    try:
        settings.getbool(name)
    except (TypeError, ValueError):
        return "is neither True nor False"
    return None


def text(pattern: str, fault: str) -> Checker:
    """Return a checker for text that ``pattern`` matches in full."""
    compiled = re.compile(pattern)

    def check(settings: BaseSettings, name: str) -> str | None:
        value = settings.get(name)
        return None if isinstance(value, str) and compiled.fullmatch(value) else fault

    return check


def one_of(*words: str) -> Checker:
    """Return a checker for one of some words."""
    return text("|".join(words), f"is not {', '.join(words[:-1])} or {words[-1]}")


def parsed(
    parse: Callable[[Any], object],
    fault: str = "{}",
    get: Callable[[BaseSettings, str], Any] = BaseSettings.get,
) -> Checker:
    """Return a checker for a value that ``parse`` takes without an error.

    ``{}`` in ``fault`` stands for the message of the error. ``get`` is the getter of settings.
    """

    def check(settings: BaseSettings, name: str) -> str | None:
        try:
            parse(get(settings, name))
        except (TypeError, ValueError, AttributeError) as error:
            return fault.format(error)
        return None

    return check


def each(test: Callable[[str], object], wanted: str) -> Checker:
    """Return a checker for a list, or text with commas, of which each part passes ``test``.

    A part fails if ``test`` returns false or raises ValueError.
    """

    def check(settings: BaseSettings, name: str) -> str | None:
        try:
            parts = settings.getlist(name)
        except TypeError:
            return f"is not a list of {wanted}"
        for part in parts:
            if not (isinstance(part, str | int) and _passes(test, str(part))):
                return f"has {part!r}, which is not one of the {wanted}"
        return None

    return check


def _passes(test: Callable[[str], object], part: str) -> bool:
    try:
        return bool(test(part))
    except ValueError:
        return False
