"""The rules: read from TOML, applied in order, the first that a page fails names it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from xxhash import xxh3_64_hexdigest

from krowlspider.corpus.optouts import SIGNALS, OptOutSignal
from krowlspider.corpus.quality.measures import BadWords, Measures, entries_of
from krowlspider.corpus.quality.personal_data import KINDS
from krowlspider.corpus.text.document import LANGUAGES, MACRO, Document
from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from pathlib import Path


_TABLES = frozenset({"signals", "language", "pii", "boilerplate", "duplicates", "versions"})
# The values that a list or a word may have, and the keys that a table may have.
_NAMES = {
    ("signals", "refused"): sorted(SIGNALS),
    ("language", "accepted"): [*sorted({*LANGUAGES, *MACRO}), "unknown"],
    ("bad_words", "files"): sorted(LANGUAGES),
    **{("pii", kind): ["keep", "mask"] for kind in KINDS},
}
_KEYS = {"enabled": bool, "min": (int, float), "max": (int, float)}


class Rejected(NamedTuple):
    """The rule that a page fails, and its value there."""

    rule: str
    value: float | str


@dataclass(frozen=True, slots=True)
class Rule:
    """A measure of this name must lie between ``low`` and ``high``; None is no limit."""

    name: str
    low: float | None
    high: float | None

    def value_against(self, measures: Measures) -> float | None:
        """Return the value that breaks the rule; None if the page keeps it."""
        least, most = measures.bounds(self.name)
        if self._allows(least) and self._allows(most):
            return None
        value = measures.value(self.name)
        return None if value is None or self._allows(value) else round(value, 4)

    def _allows(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


@dataclass(frozen=True, slots=True)
class Rules:
    """What a page must keep. ``refused`` are signals; without ``languages`` each is accepted.

    Near duplicates have at least ``similarity`` of their sequences of words in common; None keeps
    them. With ``numbers``, a text whose numbers alone have changed is a new version of its URL.
    ``masked`` are KINDS. A line on more than ``boilerplate`` pages of a host is removed; None
    keeps all lines.
    """

    rules: list[Rule]
    refused: frozenset[str]
    languages: frozenset[str]
    exact: bool
    similarity: float | None
    masked: frozenset[str] = frozenset()
    boilerplate: int | None = None
    bad_words: dict[str, BadWords] = field(default_factory=dict)
    numbers: bool = False
    source: dict[str, Any] = field(default_factory=dict)

    def judge(self, document: Document, url: str, signals: list[OptOutSignal]) -> Rejected | None:
        """Return why a page is rejected; None if it is accepted.

        The value of a signal is the id of the record that says it.
        """
        for signal in signals:
            if signal.name in self.refused:
                return Rejected(signal.name, signal.record_id)
        if self.languages and document.language not in self.languages:
            return Rejected("language", document.language)
        measures = Measures(document, url, self.bad_words)
        for rule in self.rules:
            value = rule.value_against(measures)
            if value is not None:
                return Rejected(rule.name, value)
        return None


def default_text() -> str:
    """Return the rules that hold without a file, as TOML."""
    return files("krowlspider.corpus.quality").joinpath("rules.toml").read_text(encoding="utf-8")


def rule_names() -> list[str]:
    """Return the names of all rules, in the order in which a page meets them."""
    return [name for name in tomllib.loads(default_text()) if name not in _TABLES]


def read_rules(path: Path | None = None) -> Rules:
    """Return the default rules, with the tables and keys of a file in their place.

    :raises KrowlError: the file is not TOML, or has something that is no rule
    """
    tables = tomllib.loads(default_text())
    if path is not None:
        try:
            given = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise KrowlError(f"{path} cannot be read as rules: {error}") from error
        for name, table in given.items():
            if name not in tables or not isinstance(table, dict):
                raise KrowlError(f"{path}: {name!r} is no rule: scrapy corpus --print-rules")
            for key, value in table.items():
                _check(path, name, key, value, tables[name])
            tables[name] |= table
    return _made(tables, path.parent if path else None)


def _check(path: Path, name: str, key: str, value: Any, known: dict[str, Any]) -> None:
    kind: Any = type(known[key]) if key in known else None if name in _TABLES else _KEYS.get(key)
    if kind in {int, float}:
        kind = (int, float)
    if kind is None or not isinstance(value, kind) or (kind is not bool and value is True):
        raise KrowlError(
            f"{path}: {name}.{key} = {value!r}: scrapy corpus --print-rules has the keys"
        )
    if (name, key) == ("duplicates", "similarity") and not 0.5 <= value <= 1:
        raise KrowlError(f"{path}: {name}.{key} = {value!r}: give 0.5 to 1")
    if (name, key) == ("boilerplate", "pages") and (not isinstance(value, int) or value < 1):
        raise KrowlError(f"{path}: {name}.{key} = {value!r}: give 1 or more")
    allowed = _NAMES.get((name, key))
    values = [value] if isinstance(value, str) else value
    if allowed and (wrong := [each for each in values if each not in allowed]):
        raise KrowlError(f"{path}: {name}.{key} has {wrong[0]!r}: it may have {', '.join(allowed)}")


def _made(tables: dict[str, dict[str, Any]], folder: Path | None) -> Rules:
    """Return the rules in ``tables``, in which the hash of each list replaces its file name."""
    duplicates, bad = tables["duplicates"], tables["bad_words"]
    accepted = tables["language"]["accepted"]
    words: dict[str, BadWords] = {}
    if folder is not None and bad["enabled"]:
        for language, name in bad["files"].items():
            text = _list(folder, name)
            words[language] = BadWords(entries_of(text), language)
            bad["files"] = bad["files"] | {language: xxh3_64_hexdigest(text.encode())}
    bad["enabled"] = bool(words)
    return Rules(
        [
            Rule(name, table.get("min"), table.get("max"))
            for name, table in tables.items()
            if name not in _TABLES and table["enabled"]
        ],
        frozenset(tables["signals"]["refused"]),
        frozenset(code for name in accepted for code in MACRO.get(name, (name,))),
        duplicates["exact"],
        duplicates["similarity"] if duplicates["near"] else None,
        frozenset(kind for kind, way in tables["pii"].items() if way == "mask"),
        tables["boilerplate"]["pages"] if tables["boilerplate"]["enabled"] else None,
        words,
        tables["versions"]["numbers"],
        tables,
    )


def _list(folder: Path, name: Any) -> str:
    try:
        return (folder / str(name)).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise KrowlError(
            f"bad_words.files: {folder / str(name)} cannot be read as a list of words: {error}"
        ) from error
