"""Check the arguments of a crawl before anything starts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from krowlspider.config.contact import contact_fault
from krowlspider.library.messages import CrawlOrder
from krowlspider.urls.scope import ScopeRules
from krowlspider.urls.seeds import BadSeed, parse_seed

# Settings that are arguments.
_ARGUMENTS = {"KROWL_ARCHIVE": "archive", "KROWL_CONTACT": "contact", "JOBDIR": "jobdir"}


class Limits(TypedDict, total=False):
    """The arguments of `crawl` that limit which pages are fetched.

    - ``max_pages``: pages to fetch in this run.
    - ``max_depth``: links from a seed; 0 means only the seeds.
    - ``allow``, ``deny``: regular expressions; a URL is queued if one of the first matches, or
      there is none, and none of the second.
    - ``same_host``, ``same_domain``: follow only links to the host, or the registrable domain, of
      their page.
    - ``scope``: "new" replaces the limits that a ``jobdir`` keeps, ``max_pages`` excepted.
    - ``until``: "seeds" stops the crawl once each seed was fetched, dropped or refused.
    """

    max_pages: int | None
    max_depth: int | None
    allow: str | Iterable[str]
    deny: str | Iterable[str]
    same_host: bool
    same_domain: bool
    scope: str | None
    until: str | None


def order_of(
    seeds: str | Path | Iterable[str],
    limits: Limits,
    *,
    contact: str,
    jobdir: str | os.PathLike[str] | None,
    archive: bool | None,
    settings: Mapping[str, Any] | None,
) -> CrawlOrder:
    """Return the order for a crawl. Without ``jobdir``, its folder is made as the crawl starts.

    ``archive`` None: only what has a ``jobdir`` is archived, as else the archive would be removed.

    :raises ValueError: an argument is wrong; the message names it and the way out
    :raises TypeError: it is of another type
    """
    if unknown := sorted(limits.keys() - Limits.__annotations__.keys()):
        raise TypeError(
            f"{unknown[0]}= is no argument: give some of {', '.join(Limits.__annotations__)}"
        )
    if fault := contact_fault(contact):
        raise ValueError(f"contact={contact!r} {fault}")
    lines, file = _seeds(seeds)
    if not lines and file is None and jobdir is None:
        raise ValueError("seeds has no seed: give URLs or domains, or the jobdir of a crawl")
    if archive is not None and not isinstance(archive, bool):
        raise ValueError(f"archive={archive!r}: give True or False, or None: only with a jobdir")
    return CrawlOrder(
        seeds=lines,
        file=file,
        jobdir=_folder(jobdir),
        temporary=jobdir is None,
        arguments=_spider_arguments(limits),
        settings={
            "KROWL_CONTACT": contact,
            "KROWL_ARCHIVE": jobdir is not None if archive is None else archive,
            **_settings({} if settings is None else settings),
        },
    )


def _folder(jobdir: object) -> str:
    if jobdir is None:
        return ""
    if not isinstance(jobdir, str | os.PathLike) or not os.fspath(jobdir):
        raise TypeError(f"jobdir={jobdir!r}: give the path of a folder, or None: a temporary one")
    path = os.path.abspath(jobdir)  # noqa: PTH100 - keeps symlinks
    _check_text(f"jobdir={jobdir!r}", path)
    return path


def _check_text(what: str, value: object) -> None:
    """:raises ValueError: it cannot be sent to the process of the crawl"""
    try:
        msgspec.msgpack.encode(value)
    except (UnicodeEncodeError, OverflowError) as error:
        raise ValueError(f"{what} cannot be handed to the process of the crawl: {error}") from error


def in_temporary_folder(order: CrawlOrder) -> CrawlOrder:
    """Return an order with a new temporary folder, if it has none."""
    if not order.temporary:
        return order
    return msgspec.structs.replace(order, jobdir=tempfile.mkdtemp(prefix="krowlspider-"))


def _seeds(given: str | Path | Iterable[str]) -> tuple[list[str], str | None]:
    """Return the lines of seeds, and the file of seeds, of which one is empty."""
    if isinstance(given, Path):
        if not given.is_file() or not os.access(given, os.R_OK):
            raise ValueError(f"seeds={str(given)!r} cannot be read: give a file, one seed a line")
        return [], str(given.absolute())
    if not isinstance(given, Iterable) or isinstance(given, bytes):
        raise TypeError(f"seeds={given!r}: give URLs or domains, or the Path of a file of them")
    lines = [given] if isinstance(given, str) else list(given)
    for number, line in enumerate(lines):
        name = "seeds" if isinstance(given, str) else f"seeds[{number}]"
        _check_seed(name, line)
    return lines, None


def _check_seed(name: str, line: object) -> None:
    if not isinstance(line, str):
        raise TypeError(f"{name}={line!r} is no text: give a URL or a domain")
    try:
        seed = parse_seed(line.encode(errors="surrogateescape"))
    except BadSeed as error:
        if Path(line).is_file():
            raise ValueError(f"{name}={line!r} is a file: give Path({line!r})") from None
        raise ValueError(f"{name}={line!r}: {error}; give a URL or a domain") from error
    if seed is None or "\n" in line:
        raise ValueError(f"{name}={line!r} is not one seed: give a URL or a domain")


def _spider_arguments(limits: Limits) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, least, way in (("max_pages", 1, "no limit"), ("max_depth", 0, "no limit")):
        value = limits.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name}={value!r}: give a whole number from {least}, or None: {way}")
        found[name] = str(value)
    for name in ("allow", "deny"):
        if expressions := _expressions(name, limits.get(name) or ()):
            found[name] = " ".join(expressions)
    for name in ("same_host", "same_domain"):
        flag = limits.get(name, False)
        if not isinstance(flag, bool):
            raise TypeError(f"{name}={flag!r}: give True or False")
        if flag:
            found[name] = "1"
    for name, word in (("scope", "new"), ("until", "seeds")):
        value = limits.get(name)
        if value is not None and value != word:
            raise ValueError(f"{name}={value!r}: give {word!r}, or None")
        if value is not None:
            found[name] = word
    return found


def _expressions(name: str, given: object) -> list[str]:
    if not isinstance(given, Iterable):
        raise TypeError(f"{name}={given!r}: give regular expressions as text")
    expressions = [given] if isinstance(given, str) else list(given)
    for each in expressions:
        if not isinstance(each, str) or any(map(str.isspace, each)):
            raise ValueError(f"{name}={each!r}: give regular expressions; no URL has a blank")
        try:
            ScopeRules(allow=(each,))
        except ValueError as error:
            raise ValueError(f"{name}={each!r}: {error}") from error
    return expressions


def _settings(given: object) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise TypeError(f"settings={given!r}: give a mapping of names to values")
    found = {}
    for name, value in given.items():
        if not isinstance(name, str):
            raise TypeError(f"settings has {name!r}: give the names of settings as text")
        if name in _ARGUMENTS:
            raise ValueError(f"settings has {name}: give {_ARGUMENTS[name]}= in its place")
        try:
            found[name] = msgspec.to_builtins(value, enc_hook=_plain)
        except (TypeError, NotImplementedError) as error:
            raise ValueError(
                f"settings[{name!r}]={value!r} cannot be handed to the process of the crawl: give"
                " text, numbers, lists and mappings, and a class by its import path"
            ) from error
        _check_text(f"settings[{name!r}]={value!r}", found[name])
    return found


def _plain(value: object) -> str:
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    raise NotImplementedError
