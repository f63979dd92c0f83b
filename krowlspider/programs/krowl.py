"""``scrapy krowl``: put the add-on into a project, and say what differs there; make sheets of a
table of policies."""

from __future__ import annotations

import os
import sys
import time
import tokenize
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from difflib import unified_diff
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import UsageError
from scrapy.settings import BaseSettings, Settings, default_settings
from scrapy.utils.reactor import install_reactor

from krowlspider.addon import has_frontier, profile_of
from krowlspider.archive.disk import write_durably
from krowlspider.catalogue.databases import POLICIES, read_table
from krowlspider.commands.crawl import loaded_spiders
from krowlspider.config.contact import contact_fault
from krowlspider.config.differences import component_path, differences
from krowlspider.config.settings_file import (
    ADDON,
    ENTRY,
    FURTHER_LINE,
    LINE,
    UneditableError,
    assignment,
    edited,
)
from krowlspider.errors import KrowlError, counted, scrapy_with
from krowlspider.policies.tables import ROWS_MAX, SHEET, sheets_of, unread
from krowlspider.programs.program import FOUND_WRONG, STDIO, Program, refuse_options, written

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from types import ModuleType

# Seconds between two looks at a table.
_LOOK = 10.0
_JOBDIR = "jobs/{spider}"
_OWN_JOBDIR = f'give each its own: JOBDIR = "{_JOBDIR}"'
_FOR_ALL = "What differs in any project: docs/spiders.md. From other packages: docs/migration.md."


class Command(Program):
    def syntax(self) -> str:
        return "init --contact you@example.org [--dry-run] | policies --from URL [options]"

    def short_desc(self) -> str:
        return "Put krowlspider into this project, and say what differs"

    def long_desc(self) -> str:
        return (
            "Write ADDONS, KROWL_CONTACT and JOBDIR into the settings module of this project, where"
            " they are not set, and say what differs for its spiders. If the file cannot be edited"
            " safely, print the lines. `policies` prints the rows of a table in PostgreSQL or"
            " SQLite as a file for KROWL_POLICIES. Exit code 1: something has to be done by hand;"
            " 2: bad input"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--contact",
            metavar="WHO",
            help="e-mail address or URL where the owners of sites can reach you",
        )
        parser.add_argument("--dry-run", action="store_true", help="write nothing")
        parser.add_argument(
            "--from", dest="source", metavar="URL", help="database that has the table of policies"
        )
        parser.add_argument(
            "--table", metavar="NAME", default=POLICIES, help=f"that table ({POLICIES})"
        )
        parser.add_argument(
            "--follow", action="store_true", help="write the file again when the table has changed"
        )
        parser.add_argument(
            "-o", "--output", metavar="FILE", default=STDIO, help="file for the sheets"
        )

    def act(self, args: list[str], opts: argparse.Namespace) -> None:
        refuse_options("krowl", args)
        if args == ["policies"]:
            self._policies(opts)
        elif args == ["init"]:
            self._init(opts)
        else:
            raise UsageError("give init or policies: scrapy krowl init --contact you@example.org")

    def _policies(self, opts: argparse.Namespace) -> None:
        """Write the rows of a table as sheets, all of them or none."""
        if opts.source is None:
            raise KrowlError("--from is not given: give the URL of the database")
        if opts.follow and opts.output == STDIO:
            raise KrowlError("--follow needs a file, which a crawl reads again: give -o FILE")
        say = partial(print, "krowlspider:", file=sys.stderr, flush=True)
        delay_min = self.settings.getfloat("KROWL_DELAY_MIN")
        sheets = partial(_sheets_in, opts.source, opts.table, delay_min, say)
        text = sheets()
        _write_sheets(opts.output, text)
        say(f"{counted(text.count(SHEET), 'sheet')} of {opts.table}")
        if opts.follow:
            with suppress(KeyboardInterrupt):
                follow_table(sheets, partial(_write_sheets, opts.output), text, say)

    def _init(self, opts: argparse.Namespace) -> None:
        module = SettingsModule.of_project()
        wanted = {"KROWL_CONTACT": opts.contact, "JOBDIR": _JOBDIR}
        values = {name: value for name, value in wanted.items() if not module.values.get(name)}
        if "KROWL_CONTACT" in values:
            _check_contact(opts.contact)
        addon = profile_of(_settings_of(module.values)) is None
        plan = module.planned(values, addon=addon)
        if plan.hindrance:
            lines = [module.addon_line] if addon else []
            self.say("\n".join([*lines, *starmap(assignment, values.items())]))
        else:
            self._write(module, plan.text, dry_run=opts.dry_run)
        refused = self._differences(plan.settings)
        if plan.hindrance:
            why = f"{module.name} is not changed, because {plan.hindrance}"
            self.complain(f"{why}: put the lines above at its end", FOUND_WRONG)
        elif refused:
            self.complain("no crawl starts before that is mended", FOUND_WRONG)

    def _write(self, module: SettingsModule, text: str, *, dry_run: bool) -> None:
        """Print what changes, and change it."""
        before = module.text.splitlines()
        names = (module.name, f"{module.name}{' (not written)' if dry_run else ''}")
        diff = list(unified_diff(before, text.splitlines(), *names, lineterm="", n=1))
        self.say("\n".join(diff) or f"{module.name} has all three lines")
        if diff and not dry_run:
            module.write(text)

    def _differences(self, values: Mapping[str, Any]) -> bool:
        """Print what differs with these settings; return whether a start would be refused."""
        settings = _settings_of(values)
        loader = loaded_spiders(settings)
        spiders = [loader.load(name) for name in sorted(loader.list())] or [Spider]
        # Components are loaded; the project's own reactor may be refused.
        install_reactor(default_settings.TWISTED_REACTOR)
        frontier = has_frontier(settings)
        found = [differences(settings, spider, frontier=frontier) for spider in spiders]
        refusals = _joined(spiders, [each.refusals for each in found])
        notes = _joined(spiders, [each.notes for each in found])
        jobdirs = Counter(Crawler(spider, settings).settings["JOBDIR"] for spider in spiders)
        notes += [
            f"JOBDIR={jobdir} is for one spider: {_OWN_JOBDIR}"
            for jobdir, count in jobdirs.items()
            if count > 1 and "{spider}" not in str(jobdir)
        ]
        for title, lines in (("A start is refused", refusals), ("What differs", notes)):
            if lines:
                self.say("\n".join(["", f"{title}:", *(f"- {line}" for line in lines)]))
        self.say(f"\n{_FOR_ALL}")
        if not refusals:
            self.say(f"Then: {scrapy_with('crawl', getattr(spiders[0], 'name', 'SPIDER'))}")
        return bool(refusals)


def _sheets_in(source: str, table: str, delay_min: float, say: Callable[[str], None]) -> str:
    """Return the rows of a table as sheets.

    :raises KrowlError: the table cannot be read, or a row is no sheet
    """
    columns, rows = read_table(source, table, ROWS_MAX + 1, say)
    if len(rows) > ROWS_MAX:
        raise KrowlError(f"{table} has more than {ROWS_MAX:,} rows: give a view of fewer")
    text = sheets_of(columns, rows, table, delay_min)
    if others := unread(columns):
        names = " ".join(", ".join(others).split())
        say(f"not read: {names}; docs/policies.md has the keys of a sheet")
    return text


def _write_sheets(name: str, text: str) -> None:
    with written(name) as file:
        file.write(text)


def follow_table(
    sheets: Callable[[], str],
    write: Callable[[str], object],
    text: str,
    say: Callable[[str], object],
    sleep: Callable[[float], object] = time.sleep,
) -> NoReturn:
    """Write the sheets of a table whenever they differ from ``text``, the last ones. While they
    cannot be read, or written, the file stays as it is, and each fault is said once."""
    fault = ""
    while True:
        sleep(_LOOK)
        try:
            if (found := sheets()) != text:
                write(found)
                text = found
                say(f"the table has changed: {counted(text.count(SHEET), 'sheet')}")
            fault = ""
        except KrowlError as error:
            if str(error) != fault:
                say(f"the file stays as it is: {error}")
            fault = str(error)


def _settings_of(values: Mapping[str, Any]) -> Settings:
    """Return the settings of a project, without those that the command has filled in."""
    settings = Settings()
    settings.setdict(values, priority="project")
    return settings


def _check_contact(contact: str | None) -> None:
    if contact is None:
        raise KrowlError(
            "--contact is not given: site owners must be able to reach you; give --contact"
            " you@example.org (or a URL)"
        )
    if fault := contact_fault(contact):
        raise KrowlError(f"--contact {contact!r} {fault}")


def _joined(spiders: Sequence[type[Spider]], found: Sequence[Sequence[str]]) -> list[str]:
    """Return each line once, with the names of its spiders in front if it is not one of all."""
    names: dict[str, list[str]] = {}
    for spider, lines in zip(spiders, found, strict=True):
        for line in lines:
            names.setdefault(line, []).append(getattr(spider, "name", ""))
    return [
        line if len(of) == len(spiders) else f"{', '.join(of)}: {line}"
        for line, of in names.items()
    ]


class ModulePlan(NamedTuple):
    """The text that a settings module is to have, and the settings that it gives.

    With a ``hindrance`` it cannot be edited safely, and the settings are those of the lines put
    there by hand.
    """

    text: str
    settings: dict[str, Any]
    hindrance: str = ""


class SettingsModule:
    """The file that has the settings of a project. ``values`` are those that it gives now, ``name``
    is its path as it is shown."""

    def __init__(self, module: ModuleType):
        self.path = Path(str(module.__file__))
        self.name = os.path.relpath(self.path)
        self._names = {name: each for name, each in vars(module).items() if name[:2] == "__"}
        self.values = _settings_in(vars(module))
        self.addons = addons_in(self.values)
        with self.path.open("rb") as file:
            self._encoding = tokenize.detect_encoding(file.readline)[0]
        self.text = self.path.read_bytes().decode(self._encoding)

    @classmethod
    def of_project(cls) -> SettingsModule:
        """:raises KrowlError: there is no project here, or its settings are in no file"""
        module = sys.modules.get(os.environ.get("SCRAPY_SETTINGS_MODULE", ""))
        if module is None:
            raise KrowlError(
                "there is no project here: run this in the folder of its scrapy.cfg, which scrapy"
                " startproject makes"
            )
        if not Path(str(module.__file__)).is_file():
            raise KrowlError(f"{module.__file__} is no file: run this where the project is")
        return cls(module)

    @property
    def addon_line(self) -> str:
        """The line that gives the project the add-on, put at the end of the module."""
        if isinstance(self.values.get("ADDONS"), Mapping):
            return FURTHER_LINE if self.addons else LINE
        # JSON or pairs cannot be continued.
        others = [f"{path!r}: {order!r}" for path, order in by_path(self.addons).items()]
        return f"ADDONS = {{{', '.join([*others, ENTRY])}}}"

    def planned(self, values: Mapping[str, str], *, addon: bool) -> ModulePlan:
        """Return the plan to add the settings, and with ``addon`` the add-on."""
        if not values and not addon:
            return ModulePlan(self.text, self.values)
        try:
            return self._edited(values, addon=addon)
        except UneditableError as error:
            addons = {"ADDONS": {**self.addons, ADDON: 100}}
            settings = {**self.values, **values, **(addons if addon else {})}
            return ModulePlan(self.text, settings, str(error))

    def _edited(self, values: Mapping[str, str], *, addon: bool) -> ModulePlan:
        """:raises UneditableError: the text cannot be edited safely"""
        if not (os.access(self.path, os.W_OK) and os.access(self.path.resolve().parent, os.W_OK)):
            raise UneditableError("it is read-only")
        text = edited(self.text, values, addon=self.addon_line if addon else "")
        names = dict(self._names)
        exec(compile(text, self.path, "exec"), names)  # noqa: S102 - as Scrapy imports it
        found = _settings_in(names)
        for name, value in values.items():
            if found.get(name) != value:
                raise UneditableError(f"its other lines change {name}")
        wanted = {**self.addons, ADDON: 100} if addon else self.addons
        if by_path(addons_in(found)) != by_path(wanted):
            raise UneditableError("its other lines change ADDONS")
        return ModulePlan(text, found)

    def write(self, text: str) -> None:
        path = self.path.resolve()
        with write_durably(path) as draft:
            os.fchmod(draft.fileno(), path.stat().st_mode)
            draft.write(text.encode(self._encoding))


def addons_in(values: Mapping[str, Any]) -> dict[Any, Any]:
    return dict(BaseSettings(values.get("ADDONS")))


def by_path(addons: Mapping[Any, Any]) -> dict[str, Any]:
    return {component_path(addon): order for addon, order in addons.items()}


def _settings_in(names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in names.items() if name.isupper()}
