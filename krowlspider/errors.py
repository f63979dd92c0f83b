"""Errors that are shown to a person in one line; counts, sizes and texts as people read them."""

from __future__ import annotations

import errno
import gc
import os
import re
import signal
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_STDERR = 2
# An exceeded quota or file size limit is treated like a full disk.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class KrowlError(Exception):
    """A mistake of the user or a fault of the machine.

    The message is one line that names the wrong input and the way out.
    """


class SettingsError(KrowlError):
    """A setting is unknown, missing or invalid."""


class SeedsError(KrowlError):
    """The seeds cannot be read."""


class JobError(KrowlError):
    """The job folder cannot be used: not writable, in use, or of another job."""


class CrawlError(KrowlError):
    """A crawl of the library ended before its work was done. What is queued stays queued."""


def scrapy_with(*words: object) -> str:
    """Return a command of Scrapy for the shell, with the program as this process was started."""
    program = Path(sys.argv[0])
    started = [sys.argv[0]] if program.name == "scrapy" else ["scrapy"]
    if program.parts[-2:] == ("scrapy", "__main__.py"):
        started = [sys.executable, "-m", "scrapy"]
    return join([*started, *map(str, words)])


def install_with(extra: str) -> str:
    """Return the command for the shell that installs an extra of pyproject.toml into this Python.

    The project is not on a package index: a checkout installs the extra from itself.
    """
    root = Path(__file__).resolve().parents[1]
    if (root / "pyproject.toml").is_file():
        folder = "." if root == Path.cwd().resolve() else str(root)
        return pip_install("-e", f"{folder}[{extra}]")
    try:
        needs = [need.partition(";") for need in requires("krowlspider") or []]
    except PackageNotFoundError:
        needs = []
    packages = [name.strip() for name, _, when in needs if re.search(rf"\b{extra}\b", when)]
    return pip_install(*(packages or [f"krowlspider[{extra}]"]))


def need(module: str, extra: str = "corpus") -> Any:
    """Return a module of an extra.

    :raises KrowlError: it is not installed
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise KrowlError(f"{package} is not installed: {install_with(extra)}") from error


def pip_install(*words: str) -> str:
    """Return the command for the shell by which pip installs something into this Python."""
    here, program = Path.cwd(), Path(sys.executable)
    shown = program.relative_to(here) if program.is_relative_to(here) else program
    pip = [str(shown.with_name("pip"))] if program.with_name("pip").exists() else []
    return join([*(pip or [str(shown), "-m", "pip"]), "install", *words])


def prepare_command() -> None:
    """Prepare a process that is a command of Scrapy; scripts handle Ctrl-C themselves."""
    if "scrapy.cmdline" in sys.modules:
        replace_closed_streams()
        report_interrupts()
        # Imports make many objects that stay: with Python's default of 700 new ones, collecting
        # garbage takes a tenth of the CPU time of a start.
        gc.set_threshold(200_000)


def report_interrupts() -> None:
    """Print one line for a Ctrl-C that ends the process. A crawl that runs handles it itself.

    SIGINT is not ignored, though a script that starts a command with "&" has it ignored.

    A KeyboardInterrupt in the callback of a weak reference, or in a destructor, would be lost: it
    ends the process here.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    before, ignored = sys.excepthook, sys.unraisablehook

    def report(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if issubclass(kind, KeyboardInterrupt):
            print("krowlspider: interrupted", file=sys.stderr)
        else:
            before(kind, error, trace)

    def end(lost: sys.UnraisableHookArgs) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            print("krowlspider: interrupted", file=sys.stderr)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        else:
            ignored(lost)

    sys.excepthook, sys.unraisablehook = report, end


def replace_closed_streams() -> None:
    """Open the null device for each standard stream that is closed.

    Otherwise a file of the crawl would get its number, and what any library prints would be written
    into that file. Scrapy cannot log to standard error that is closed.
    """
    null = os.open(os.devnull, os.O_RDWR)
    while null <= _STDERR:
        null = os.open(os.devnull, os.O_RDWR)
    os.close(null)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")


def error_text(error: BaseException) -> str:
    """Return the message of an error as text. LevelDB's errors have bytes."""
    words = error.args[0] if error.args else ""
    return words.decode(errors="replace") if isinstance(words, bytes) else str(error)


def lacks_room(error: BaseException | None) -> bool:
    """Return whether a write failed only because the disk had no room.

    It may succeed once there is room.
    """
    if not isinstance(error, OSError):
        return False
    if error.errno is not None:
        return error.errno in _NO_ROOM
    # LevelDB's errors have no errno: their text ends with the system's message for it.
    return any(error_text(error).endswith(os.strerror(number)) for number in _NO_ROOM)


def for_want_of_room(error: BaseException | None) -> bool:
    """Return whether an error, or a cause in its chain, is a full disk."""
    while error is not None and not lacks_room(error):
        error = error.__cause__
    return error is not None


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 error``, ``2 errors``, ``2 tries``, ``2 processes``."""
    if number == 1:
        return f"{number:,} {noun}"
    if noun.endswith("ry"):
        return f"{number:,} {noun[:-1]}ies"
    return f"{number:,} {noun}{'es' if noun.endswith('s') else 's'}"


# The kinds of what was fetched, as people read them.
_KINDS = {
    "page": "pages",
    "redirect": "redirects",
    "not_modified": "not modified",
    "sitemap": "sitemaps",
    "requisite": "requisites",
    "opt_out": "opt-out files",
    "index_key": "keys of IndexNow",
    "subrequest": "subrequests of the browser",
    "robots": "robots.txt",
}


def kind_words(kind: str) -> str:
    """Return the plural of a kind of `krowlspider.frontier.stopped.fetched_in`."""
    return _KINDS[kind]


def also_fetched(fetched: Mapping[str, int]) -> str:
    """Return what was fetched besides pages; "" for nothing. The argument has numbers by kind."""
    found = ((kind, number) for kind, number in fetched.items() if kind != "page" and number)
    return ", ".join(f"{kind_words(kind)}: {number:,}" for kind, number in found)


def data_size(count: float) -> str:
    """Return a number of bytes with its unit: ``14.3 KB``, ``7.3 MB``, ``1,204.0 GB``."""
    for unit, size in (("KB", 1e3), ("MB", 1e6)):
        if count < 999.95 * size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e9:,.1f} GB"


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: ``8.5 s``, ``1 min 30 s``, ``28 h 17 min``."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    if (whole := round(seconds)) < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def printable(text: str) -> str:
    """Return a text with "?" for characters that are not printable, which may change a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "?" for each in text)
