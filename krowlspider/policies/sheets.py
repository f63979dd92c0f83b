"""Sheets of a file of policies: what they cover, and which of them decides a key.

The most specific sheet that has a key decides it. From the least to the most specific: a block of
IP addresses, a longer one later; a name and all names below it, a longer one later; one host; one
host at one port; a path prefix of a host, a longer one later.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import replace
from difflib import get_close_matches
from ipaddress import ip_address, ip_network
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from krowlspider.errors import KrowlError, counted
from krowlspider.policies.keys import KEYS, REWRITES, Policy
from krowlspider.urls.canonical import (
    host_of,
    is_public_suffix,
    labels_above_suffix,
    name_of,
    normalise,
    orders_for,
    with_upper_escapes,
)
from krowlspider.urls.seeds import block_rule, is_plain_name, ordered_host, rule_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Hosts for which the sheets are resolved in memory: about 200 bytes each, 800 if sheets cover it.
# The first one is forgotten first.
HOSTS_MAX = 65_536
# Errors of a file that are named; further ones are only counted.
_ERRORS_MAX = 20
# Length of the prefix that is known of the IPv6 address of a host.
_SITE = 64
# The authority of an http or https URL begins at this index or before it, and that of a gemini URL
# at the next one.
_AUTHORITY = 8

_SHEET = "[[sheet]]"
_HEADER = re.compile(r"[ \t]*\[\[[ \t]*sheet[ \t]*\]\][ \t]*(?:#.*)?\r?")
# One key with a plain value on a line; every other line is left to tomllib.
_TEXT = r"\"[^\"\\\x00-\x1f\x7f]*+\"|'[^'\x00-\x1f\x7f]*+'"
_END = r"[ \t]*(?:#[^\x00-\x08\x0a-\x1f\x7f]*)?\r?"
_LINE = re.compile(
    rf"[ \t]*([a-z_]++)[ \t]*=[ \t]*(?:({_TEXT})|(true|false)|(0|[1-9][0-9]*+)(\.[0-9]++)?"
    rf"|\[[ \t]*((?:{_TEXT})(?:[ \t]*,[ \t]*(?:{_TEXT}))*+)[ \t]*,?[ \t]*\]){_END}"
)
# The groups of its values.
_QUOTED, _FLAG, _WHOLE, _FRACTION, _LIST = range(2, 7)
_TEXTS = re.compile(_TEXT)
# The rows that differ in each sheet, as most are written.
_OWN = re.compile(r"(name|match) = (\[)?\"([^\"\\\x00-\x1f\x7f]*+)\"(\])?")
# The table of headers, with plain texts.
_PAIR = rf"[ \t]*+([\w-]++|{_TEXT})[ \t]*+=[ \t]*+({_TEXT})[ \t]*+"
_HEADERS = re.compile(rf"headers[ \t]*+=[ \t]*+\{{((?:[^\"'{{}}#\[\]]|{_TEXT})++)\}}{_END}")
_PAIRS = re.compile(rf"{_PAIR}(?:,|\Z)", re.ASCII)
_BLANK = re.compile(_END)
# The path of a prefix that is its own normal form.
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_/-]*+")
# Rows of a file that are kept while it is read: sheets often have the same ones.
_ROWS_MAX = 4096
_KEY = re.compile(r"[ \t]*(?:\[[ \t]*sheet[ \t]*\.[ \t]*)?[\"']?([\w-]+)[\"']?[ \t]*(?:\]|=|\.)")
# Kind and text of what a sheet covers, as `_match` returns them.
_Match = tuple[str, str]
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)")

_NONE = Policy()


class BadPolicies(KrowlError):
    """A file of policies has errors. ``errors`` has a line for each: file, line, what, way out."""

    def __init__(self, errors: list[str]):
        shown = "; ".join(errors[:3])
        more = f"; and {counted(len(errors) - 3, 'more error')}" if len(errors) > 3 else ""
        super().__init__(shown + more)
        self.errors = errors


class Decided(NamedTuple):
    """The sheet that decides a key, and the line of the key."""

    sheet: str
    line: int


class Sheet:
    """A sheet: its name, its first line, and the values of its keys."""

    __slots__ = ("matches", "name", "rows", "start", "values")

    def __init__(
        self,
        name: str,
        start: int,
        matches: tuple[_Match, ...],
        values: dict[str, Any],
        rows: tuple[int, ...],
    ):
        self.name = name
        self.start = start
        self.matches = matches
        self.values = values
        # Lines after the first one, in the order of ``values``.
        self.rows = rows

    def line_of(self, key: str) -> int:
        """Return the line of a key that the sheet has."""
        return self.start + self.rows[list(self.values).index(key)]


# Sheets, a later one more specific than those before it, or of the same match.
_Sheets = tuple[Sheet, ...]


class _Paths(NamedTuple):
    """The path prefixes of a host, sorted. ``parents`` has the index of the longest other prefix
    that each begins with, or -1. ``sheets`` and ``policies`` include those of the parents."""

    prefixes: list[str]
    parents: list[int]
    sheets: list[_Sheets]
    policies: list[Policy]


class HostPolicies:
    """The sheets that cover a host. ``fixed`` is what holds for the host as a whole, but for
    ``delay``: the longest of any path, in seconds; 0 for none. ``has_paths``: `of` depends on the
    path. ``rewrites``: some of its URLs may be rewritten."""

    __slots__ = ("_paths", "_sheets", "delay", "fixed", "has_paths", "rewrites")

    def __init__(self, sheets: _Sheets, paths: dict[str, list[Sheet]] | None = None):
        self._sheets = sheets
        self.fixed = _merged(sheets)
        self._paths = None if paths is None else _in_order(sheets, paths)
        every = (self.fixed, *(() if self._paths is None else self._paths.policies))
        self.delay = max(policy.delay or 0.0 for policy in every)
        self.has_paths = self._paths is not None
        self.rewrites = any(policy.rewrites for policy in every)

    def of(self, url: str) -> Policy:
        """Return what holds for a normalised URL of the host, or for a path with its query."""
        if self._paths is None or (at := self._find(self._paths, url)) < 0:
            return self.fixed
        return self._paths.policies[at]

    def why(self, url: str, key: str) -> Decided | None:
        """Return what decides a key for a URL or a path; None if no sheet does. Of ``delay``, it is
        the sheet with the longest of any path."""
        sheets = self._slowest() if key == "delay" else self._sheets_of(url)
        # The permission that holds is that of the sheet whose ``robots`` does.
        decider = "robots" if key == "permission" else key
        for sheet in reversed(sheets):
            if decider in sheet.values:
                return Decided(sheet.name, sheet.line_of(key)) if key in sheet.values else None
        return None

    def _sheets_of(self, url: str) -> _Sheets:
        if self._paths is None or (at := self._find(self._paths, url)) < 0:
            return self._sheets
        return self._paths.sheets[at]

    def _slowest(self) -> _Sheets:
        """Return the sheets of the first path with the delay of the host."""
        paths = self._paths
        if paths is None or self.fixed.delay == self.delay:
            return self._sheets
        ways = zip(paths.policies, paths.sheets, strict=True)
        return next((each for policy, each in ways if policy.delay == self.delay), self._sheets)

    @staticmethod
    def _find(paths: _Paths, url: str) -> int:
        path = url if url[:1] == "/" else url[url.index("/", _AUTHORITY + (url[0] == "g")) :]
        if "%" in path:
            path = with_upper_escapes(path)
        at = bisect_right(paths.prefixes, path) - 1
        # Each prefix of the path between the right one and the path begins with the right one.
        while at >= 0 and not path.startswith(paths.prefixes[at]):
            at = paths.parents[at]
        return at


def _merged(sheets: Iterable[Sheet]) -> Policy:
    values: dict[str, Any] = {}
    for sheet in sheets:
        if "robots" in sheet.values:
            values.pop("permission", None)
        values |= sheet.values
    return Policy(**values) if values else _NONE


def _in_order(below: _Sheets, found: dict[str, list[Sheet]]) -> _Paths:
    paths = _Paths(sorted(found), [], [], [])
    for at, prefix in enumerate(paths.prefixes):
        parent = at - 1
        while parent >= 0 and not prefix.startswith(paths.prefixes[parent]):
            parent = paths.parents[parent]
        sheets = (*(below if parent < 0 else paths.sheets[parent]), *found[prefix])
        paths.parents.append(parent)
        paths.sheets.append(sheets)
        paths.policies.append(_merged(sheets))
    return paths


class Policies:
    """The sheets of a file. ``path`` is the file, for messages and for files that sheets name."""

    def __init__(self, sheets: list[Sheet], path: str = ""):
        self.sheets = sheets
        self.path = path
        self.gives_priorities = any("priority" in sheet.values for sheet in sheets)
        # Whether a sheet rewrites URLs.
        self.rewrites = any(not REWRITES.isdisjoint(sheet.values) for sheet in sheets)
        # By host as in `orders_for`; by name, for it and all below it; by name and path prefix.
        self._hosts: dict[str, list[Sheet]] = {}
        self._names: dict[str, list[Sheet]] = {}
        self._paths: dict[str, dict[str, list[Sheet]]] = {}
        # By version and length of the prefix, then by the prefix as a number.
        self._blocks: dict[tuple[int, int], dict[int, list[Sheet]]] = {}
        self._found: OrderedDict[str, HostPolicies | None] = OrderedDict()
        # Only while sheets are added: see `_put`.
        self._first: dict[int, dict[str, Sheet]] = {}
        self._contradictions: list[tuple[int, str]] = []
        for sheet in sheets:
            for match in sheet.matches:
                self._add(sheet, match)
        self._first.clear()
        # Whether a sheet covers a block of addresses.
        self.has_blocks = bool(self._blocks)

    # --- reading ---

    @classmethod
    def parse(cls, text: str, path: str, *, delay_min: float = 0.0) -> Policies:
        """Return the sheets of a text in TOML. ``path`` is its file, for messages. ``delay_min`` is
        KROWL_DELAY_MIN, in seconds: no sheet may give a shorter delay.

        :raises BadPolicies: the text has errors
        """
        errors: list[tuple[int, str]] = []
        sheets: list[Sheet] = []
        names: dict[str, int] = {}
        for start, values, lines in _tables(text, errors):
            sheet = _sheet(start, values, lines, delay_min, errors)
            if sheet is None:
                continue
            if (first := names.setdefault(sheet.name, start)) != start:
                why = f"the sheet of line {first} has this name: give another"
                errors.append((start, f"name = {sheet.name!r}: {why}"))
            sheets.append(sheet)
        found = cls(sheets, path)
        errors += found._contradictions
        if errors:
            errors.sort(key=lambda each: each[0])
            shown = [f"{path} line {line}: {error}" for line, error in errors[:_ERRORS_MAX]]
            if len(errors) > _ERRORS_MAX:
                shown.append(f"{path}: {counted(len(errors) - _ERRORS_MAX, 'more error')}")
            raise BadPolicies(shown)
        return found

    def _add(self, sheet: Sheet, match: _Match) -> None:
        """Add a sheet under one of its matches, as `_match` returns them."""
        kind, rest = match
        if kind == "block":
            network = ip_network(rest)
            at = (network.version, network.prefixlen)
            shift = network.max_prefixlen - network.prefixlen
            number = int(network.network_address) >> shift
            self._put(self._blocks.setdefault(at, {}), number, sheet, rest)
        elif kind == "path":
            name, _, prefix = rest.partition("/")
            self._put(self._paths.setdefault(name, {}), "/" + prefix, sheet, rest)
        else:
            name = rest.removesuffix(":80").removesuffix(":443")
            if kind == "host" and name != rest:
                # The host at its default ports is one.
                self._put(self._hosts, f"{name}:80", sheet, f"{name} at ports 80 and 443")
            else:
                self._put(self._names if kind == "below" else self._hosts, rest, sheet, rest)

    def _put(self, table: dict[Any, list[Sheet]], key: Any, sheet: Sheet, match: str) -> None:
        there = table.setdefault(key, [])
        if not there:
            there.append(sheet)
            return
        if there[-1] is sheet:
            return
        # The first sheet of this match that has a key: the others agree with it.
        first = self._first.get(id(there))
        if first is None:
            first = self._first[id(there)] = dict.fromkeys(there[0].values, there[0])
        there.append(sheet)
        for name, value in sheet.values.items():
            other = first.setdefault(name, sheet)
            if other.values[name] != value:
                theirs = f"line {other.line_of(name)}, of sheet {other.name!r}"
                why = f"both match {match}; leave it out of one of them"
                text = f"{name} of sheet {sheet.name!r} contradicts {theirs}: {why}"
                self._contradictions.append((sheet.line_of(name), text))

    def dismantle(self) -> None:
        """Forget all sheets, in many small steps: in a thread, it does not hold the event loop."""
        inner: list[dict[Any, Any]] = [*self._paths.values(), *self._blocks.values()]
        outer: list[dict[Any, Any]] = [self._found, self._hosts, self._names]
        for table in (*outer, *inner, self._paths, self._blocks):
            while table:
                table.popitem()
        while self.sheets:
            self.sheets.pop()

    # --- resolving ---

    def blocks_agree(self, address: str, other: str) -> bool:
        """Return whether sheets cover the same blocks of two IP addresses; "" is in none."""
        return list(self._of_address(address)) == list(self._of_address(other))

    def of_host(self, host: str, address: str = "") -> HostPolicies | None:
        """Return the sheets of a host from `host_of`; None if none covers it. ``address`` is its IP
        address if it is known: blocks of addresses cover no host without one."""
        key = f"{host} {address}" if address and self._blocks else host
        found = self._found.get(key, self)
        if not isinstance(found, Policies):
            return found
        found = self._resolve(host, address)
        if len(self._found) >= HOSTS_MAX:
            self._found.popitem(last=False)
        self._found[key] = found
        return found

    def explained(self, url: str, address: str = "") -> list[str]:
        """Return a line for each key that a sheet decides for a normalised URL: its value as in the
        file, the sheet, and the line. ``address`` is as in `of_host`."""
        if (found := self.of_host(host_of(url), address)) is None:
            return []
        keys = ((key, found.why(url, key)) for key in KEYS)
        policy = replace(found.of(url), delay=found.delay)
        return [
            f"{key} = {_shown(getattr(policy, key))}: sheet {why.sheet}, line {why.line}"
            for key, why in keys
            if why is not None
        ]

    def _resolve(self, host: str, address: str) -> HostPolicies | None:
        name = name_of(host)
        groups = list(self._of_address(address or name)) if self._blocks else []
        groups += self._of_names(name)
        groups += [self._hosts[each] for each in reversed(orders_for(host)) if each in self._hosts]
        paths = self._paths.get(name)
        sheets = tuple(chain.from_iterable(groups))
        return HostPolicies(sheets, paths) if sheets or paths else None

    def _of_address(self, address: str) -> Iterator[list[Sheet]]:
        try:
            ip = ip_address(address.strip("[]"))
        except ValueError:
            return
        for (version, length), blocks in sorted(self._blocks.items()):
            if version == ip.version:
                found = blocks.get(int(ip) >> (ip.max_prefixlen - length))
                if found is not None:
                    yield found

    def _of_names(self, name: str) -> Iterator[list[Sheet]]:
        names, start = self._names, len(name)
        while start > 0:
            start = name.rfind(".", 0, start)
            if (found := names.get(name[start + 1 :])) is not None:
                yield found


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return str([each.pattern if isinstance(each, re.Pattern) else each for each in value])
    return str(value)


# --- the text ---

_Table = tuple[int, dict[str, Any], list[int]]


def _tables(text: str, errors: list[tuple[int, str]]) -> Iterator[_Table]:
    """Yield the first line of each sheet, its values, and the lines of these, in the same order,
    counted from the first.

    Sheets with plain lines are read here, ten times as fast as tomllib reads them. A line of a
    text or an array must not be a header of a sheet, so texts of several lines are refused.
    """
    text = text.removeprefix("\ufeff")
    parts = _parts(text)
    rows = next(parts)
    before = _parsed(rows, 1, errors)
    for key, at in _key_lines(rows, 1).items():
        if before is not None and key in before:
            errors.append((at, f"{key} stands outside a sheet: begin sheets with [[sheet]]"))
    known: dict[str, tuple[str, Any]] = {}
    start = 0
    while True:
        start += len(rows) + 1
        if (part := next(parts, None)) is None:
            return
        rows = part
        if (found := _plain(rows, known)) is not None:
            yield start, *found
            continue
        table = _parsed([_SHEET, *rows], start, errors)
        if table is None:
            continue
        lines = _key_lines(rows, start + 1)
        others = table.keys() - {"sheet"}
        errors += [(lines.get(key, start), f"{key} is no part of a sheet") for key in others]
        values = table["sheet"][0]
        yield start, values, [lines.get(key, start) - start for key in values]


def _parts(text: str) -> Iterator[list[str]]:
    """Yield the rows before the first header of a sheet, and those after each header.

    A call that splits a large text would hold the event loop, though in another thread.
    """
    begin, at = 0, text.find("[[")
    while at >= 0:
        first, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        row = text[first:] if end < 0 else text[first:end]
        if row == _SHEET or _HEADER.fullmatch(row):
            yield text[begin : first - 1].split("\n") if begin < first else []
            begin = first + len(row) + 1
        at = text.find("[[", end) if end >= 0 else -1
    yield text[begin:].split("\n") if begin <= len(text) else []


def _plain(
    rows: list[str], known: dict[str, tuple[str, Any]]
) -> tuple[dict[str, Any], list[int]] | None:
    """Return the values of rows that are all plain, and their rows, the first one as 1; None if one
    is not. ``known`` has rows that were read."""
    values: dict[str, Any] = {}
    lines: list[int] = []
    for at, row in enumerate(rows, 1):
        if not row:
            continue
        if (found := known.get(row)) is not None:
            key, value = found
        elif (read := _OWN.fullmatch(row)) is not None:
            key, opened, text, closed = read.groups()
            if opened != ("[" if closed else None):
                return None
            value = [text] if closed else text
        elif (read := _LINE.fullmatch(row)) is not None:
            key, value = _value(read)
            if len(known) < _ROWS_MAX:
                known[row] = key, value
        elif _BLANK.fullmatch(row):
            continue
        elif (read := _HEADERS.fullmatch(row)) is not None:
            pairs = _pairs(read[1])
            if pairs is None:
                return None
            key, value = "headers", pairs
        else:
            return None
        if key in values:
            return None
        values[key] = value
        lines.append(at)
    return values, lines


def _pairs(text: str) -> dict[str, str] | None:
    """Return the pairs of an inline table; None if tomllib must read it."""
    pairs: dict[str, str] = {}
    at = 0
    while at < len(text):
        if (read := _PAIRS.match(text, at)) is None:
            return None
        key = read[1][1:-1] if read[1][0] in "\"'" else read[1]
        if key in pairs:
            return None
        pairs[key] = read[2][1:-1]
        at = read.end()
    # TOML has no comma before the end.
    return None if text.rstrip(" \t").endswith(",") else pairs


def _value(read: re.Match[str]) -> tuple[str, Any]:
    """Return key and value of a plain row."""
    kind, key = read.lastindex, read[1]
    if kind == _WHOLE:
        return key, int(read[_WHOLE])
    if kind == _FRACTION:
        return key, float(read[_WHOLE] + read[_FRACTION])
    if kind == _FLAG:
        return key, read[_FLAG] == "true"
    if kind == _QUOTED:
        return key, read[_QUOTED][1:-1]
    return key, [each[1:-1] for each in _TEXTS.findall(read[_LIST])]


def _parsed(rows: list[str], start: int, errors: list[tuple[int, str]]) -> dict[str, Any] | None:
    """Return what tomllib reads in rows that begin with line ``start``; None if it fails."""
    for at, row in enumerate(rows, start):
        if '"""' in row or "'''" in row:
            errors.append((at, "a text of several lines is not read: write it on one line"))
            return None
    try:
        return tomllib.loads("\n".join(rows))
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        line = int(place[1]) if place is not None and place[1] else len(rows)
        column = f" at column {place[2]}" if place is not None and place[2] else ""
        errors.append((start + line - 1, f"not TOML{column}: {_PLACE.sub('', str(error))}"))
    except RecursionError:
        errors.append((start, "not TOML: too deeply nested"))
    return None


def _key_lines(rows: list[str], start: int) -> dict[str, int]:
    lines: dict[str, int] = {}
    for at, row in enumerate(rows, start):
        if (found := _KEY.match(row)) is not None:
            lines.setdefault(found[1], at)
        elif row.lstrip().startswith("[") and (name := row.strip(" \t\r[]").split(".")[0]):
            lines.setdefault(name, at)
    return lines


# --- the values of a sheet ---


def _sheet(
    start: int,
    given: dict[str, Any],
    rows: list[int],
    delay_min: float,
    errors: list[tuple[int, str]],
) -> Sheet | None:
    """Return a sheet of checked values; None if it cannot be used. Adds what is wrong with it."""
    before = len(errors)
    name = matches = None
    name_row = match_row = 0
    values: dict[str, Any] = {}
    kept: list[int] = []
    for row, (key, value) in zip(rows, given.items(), strict=True):
        if (known := KEYS.get(key)) is not None:
            try:
                values[key] = known.check(value)
                kept.append(row)
            except ValueError as error:
                errors.append((start + row, f"{key} = {str(value)[:80]!r}: {error}"))
        elif key == "name":
            name, name_row = value, row
        elif key == "match":
            matches, match_row = value, row
        else:
            near = get_close_matches(key, (*KEYS, "name", "match"), n=1)
            hint = f": did you mean {near[0]}?" if near else "; docs/policies.md has them all"
            errors.append((start + row, f"{key} is no key of a sheet{hint}"))
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        errors.append((start + name_row, 'a sheet needs a name: write name = "news"'))
    if not isinstance(matches, list) or not matches:
        why = 'a sheet needs what it covers: write match = ["example.org"]'
        errors.append((start + match_row, why))
        matches = []
    found = []
    for match in matches:
        try:
            found.append(_match(match))
        except ValueError as error:
            errors.append((start + match_row, f"match: {error}"))
    for key, text in _conflicts(values, delay_min):
        errors.append((start + kept[list(values).index(key)], text))
    if len(errors) > before:
        return None
    return Sheet(str(name), start, tuple(found), values, tuple(kept))


# The keys that may not fit others, besides ``delay``.
_CONFLICTING = frozenset(("recrawl_min", "robots", "permission"))


def _conflicts(values: dict[str, Any], delay_min: float) -> list[tuple[str, str]]:
    """Return keys of a sheet that do not fit the settings or each other, and why."""
    if _CONFLICTING.isdisjoint(values) and values.get("delay", delay_min) >= delay_min:
        return []
    found = []
    if (delay := values.get("delay", delay_min)) < delay_min:
        below = f"below the {delay_min:g} s of KROWL_DELAY_MIN, which hold for every host"
        found.append(("delay", f"delay = {delay:g}: {below}"))
    if "recrawl_min" in values and values["recrawl_min"] > values.get("recrawl_max", inf):
        found.append(("recrawl_min", "recrawl_min is above recrawl_max"))
    if values.get("robots") == "override" and "permission" not in values:
        way = 'write permission = "who, when, how" in the same sheet'
        found.append(("robots", f"robots = 'override' needs it in writing: {way}"))
    if "permission" in values and values.get("robots") != "override":
        way = "write robots = 'override' in the same sheet, or leave it out"
        found.append(("permission", f"permission is for robots = 'override': {way}"))
    return found


def _match(given: object) -> _Match:
    """Return the kind of a match, and what it covers:

    - ``block``: the network
    - ``below``: a name; all names below it too
    - ``host``: a host as in `orders_for`
    - ``path``: a name with a path prefix

    :raises ValueError: it is none of these
    """
    if not isinstance(given, str):
        raise ValueError(f"{given!r} is not a text")  # noqa: TRY004
    if is_plain_name(given):
        # As `block_rule` reads it, in a fifth of the time, and the crawl's domains stay at hand.
        above = labels_above_suffix(given)
        return "below" if above == 1 else "host", given if above else _no_suffix(given)
    text = given.strip()
    if "/" in text and (text.partition("/")[0].strip("0123456789.") == "" or text.count(":") > 1):
        try:
            network = ip_network(text.replace("[", "").replace("]", ""))
        except ValueError as error:
            raise ValueError(f"{text[:80]!r} is no block of addresses: {error}") from None
        if network.version == 6 and network.prefixlen > _SITE:
            raise ValueError(
                f"{text[:80]!r}: of IPv6, blocks are known up to /{_SITE}: write"
                f" {network.supernet(new_prefix=_SITE)}"
            )
        return "block", str(network)
    if text.startswith("host:"):
        return "host", ordered_host(text.removeprefix("host:"))
    if "://" in text or ("/" in text and ")" not in text):
        raise ValueError(
            f"{text[:80]!r} has a path but is no SURT prefix: write 'org,example,www,)/news' for"
            " www.example.org/news, or the name of the host alone"
        )
    surt, bracket, path = text.partition(")")
    if bracket and path:
        return _path_match(surt, path)
    rule = block_rule(text)
    name = rule_name(rule)
    return "below" if rule[-1] == "," else "host", name if {",", ")"} & {*text} else _no_suffix(
        name
    )


def _no_suffix(name: str) -> str:
    """Return a name that is no public suffix: whoever writes com alone means all names below it.

    :raises ValueError: it is one
    """
    if is_public_suffix(name):
        surt = ",".join(reversed(name.split(".")))
        raise ValueError(
            f"{name!r} is a public suffix: write '{surt},' for all names below it, or 'host:{name}'"
            " for the host of this name alone"
        )
    return name


def _path_match(surt: str, path: str) -> _Match:
    plain = ".".join(reversed(surt.removesuffix(",").split(",")))
    if is_plain_name(plain) and _PLAIN_PATH.fullmatch(path) is not None:
        # As the rest reads it, in a tenth of the time.
        return "path", plain + path
    rule = block_rule(f"{surt})")
    url = normalise(f"http://{rule_name(rule)}{path}") if path[0] == "/" else None
    if url is None:
        raise ValueError(f"{f'{surt}){path}'[:80]!r} is no SURT prefix such as org,example,)/news")
    name = rule_name(rule)
    return "path", name + with_upper_escapes(url[url.index("/", _AUTHORITY) :])
