"""The log as JSON lines, Scrapy's lines about its start at DEBUG, and secrets kept out of logs."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.utils.log import get_scrapy_root_handler

from krowlspider.errors import SettingsError
from krowlspider.internals.log import format_by

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

# Events of loggers whose messages have no template.
_OF_LOGGER = {"py.warnings": "python_warning", "stdout": "printed", "twisted": "twisted"}
# A value in a template, with what is joined to it; the ends of clauses; a word.
_VALUE = re.compile(r"%(\(\w+\))?[-#0+ ]*[\d*]*(\.[\d*]+)?[a-zA-Z%]\w*")
_CLAUSE_END = re.compile(r"[:;,.](?=\s|$)|[(\n]")
_WORD = re.compile(r"[a-z][a-z0-9]*")
_WORDS_MAX = 8
# Characters of a template that are looked at.
_LOOKED_AT = 200


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object in one line of ASCII.

    ``fields`` are those of each line: spider, node and job, where they are known, and pid.
    """

    def __init__(self, settings: BaseSettings, spider: str = ""):
        super().__init__()
        known = {
            "spider": spider,
            "node": _node(settings),
            "job": str(settings.get("JOBDIR") or ""),
        }
        self.fields: dict[str, object] = {name: value for name, value in known.items() if value}
        self.fields["pid"] = os.getpid()

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "event": _event(record),
            "message": record.getMessage(),
            **self.fields,
        }
        # Scrapy gives some records their spider; a process may have several.
        if name := getattr(getattr(record, "spider", None), "name", None):
            line["spider"] = str(name)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line)


def _node(settings: BaseSettings) -> str:
    """Return the id of this node; "" without one and without a cluster."""
    if settings.get("KROWL_NODE_ID"):
        return str(settings["KROWL_NODE_ID"])
    in_cluster = settings.get("KROWL_CONSUL")
    return socket.gethostname() if in_cluster else ""


def _event(record: logging.LogRecord) -> str:
    """Return the name of the kind of a line.

    It is the ``event`` of the record, or the words of its message before the first punctuation and
    without its values. If there are none, it is the name of the function that logged it.
    """
    given = getattr(record, "event", None) or _OF_LOGGER.get(record.name)
    if isinstance(given, str):
        return given
    template = record.msg[:_LOOKED_AT] if isinstance(record.msg, str) else ""
    for clause in _CLAUSE_END.split(_VALUE.sub("", template).lower()):
        if words := _WORD.findall(clause):
            return "_".join(words[:_WORDS_MAX])
    return record.funcName.strip("_<>") if record.funcName else "line"


def formatter_of(settings: BaseSettings, spider: str = "") -> JsonFormatter | None:
    """Return the formatter of lines as JSON; None for lines of text."""
    return JsonFormatter(settings, spider) if settings.get("KROWL_LOG_FORMAT") == "json" else None


def follow_settings() -> None:
    """Make the log that Scrapy opens from now on follow KROWL_LOG_FORMAT."""
    format_by(formatter_of)


def name_spider(settings: BaseSettings, spider: str) -> None:
    """Name the spider in the lines of the log, of which Scrapy may have opened the file already.

    With several crawls in a process, this is the last one to start, except for lines that Scrapy
    marks with their spider.
    """
    format_by(partial(formatter_of, spider=spider))
    handler, formatter = get_scrapy_root_handler(), formatter_of(settings, spider)
    if handler is not None and formatter is not None:
        handler.setFormatter(formatter)


# The loggers that write at the start, and how such a message begins; "" is any message.
_AT_START = {
    "scrapy.utils.log": "",
    "scrapy.addons": "",
    "scrapy.middleware": "",
    "scrapy.crawler": "Overridden settings:",
    "scrapy.core.engine": "Spider opened",
    "scrapy.extensions.telnet": "Telnet console listening",
}


def _lower(record: logging.LogRecord) -> bool:
    """Turn an INFO line about the start into a DEBUG line; handlers check the level after this."""
    if record.levelno == logging.INFO and str(record.msg).startswith(_AT_START[record.name]):
        record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
    return True


def lower_start_lines() -> None:
    """Move Scrapy's lines about the start to DEBUG; warnings stay.

    A filter, because Scrapy's set-up of the log resets the levels of its loggers.
    """
    for name in _AT_START:
        # A filter that is there already is not added again.
        logging.getLogger(name).addFilter(_lower)


# Each may be in a file, named by the setting of the same name with _FILE.
IN_FILES = ("KROWL_CONSUL_TOKEN", "KROWL_CONTROL_TOKEN", "KROWL_NOTIFY", "REDIS_URL")
# Scrapy logs all of its own settings that are set, these too.
_LOGGED = (
    "AWS_ACCESS_KEY_ID|AWS_SECRET_ACCESS_KEY|AWS_SESSION_TOKEN|FTP_PASSWORD|TELNETCONSOLE_PASSWORD"
)
# One or more literals, as pprint writes a long text.
_TEXT = r"""(?:\s*(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))+"""
_SHOWN = re.compile(rf"('(?:{_LOGGED})': \(?){_TEXT}")


def read_files(settings: BaseSettings) -> None:
    """Read secrets from their files into their settings. A second call does nothing.

    :raises SettingsError: a file cannot be read or is empty, or the secret is also set directly
    """
    for name in IN_FILES:
        source = f"{name}_FILE"
        if not (path := settings.get(source)):
            continue
        if settings.get(name):
            raise SettingsError(f"{name} and {source} are both given: give one of them")
        priority = settings.getpriority(source) or 0
        settings.set(name, _read(source, path), priority)
        settings.set(source, "", priority)


def _read(source: str, path: str) -> str:
    try:
        value = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError, TypeError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise SettingsError(f"{source}={path} cannot be read: {why}") from error
    if not value:
        raise SettingsError(f"{source}={path} is empty: write the value into it")
    return value


def _redact(record: logging.LogRecord) -> bool:
    """Remove the secrets from Scrapy's log line about its settings."""
    if isinstance(record.args, dict) and isinstance(shown := record.args.get("settings"), str):
        record.args = {**record.args, "settings": _SHOWN.sub(r"\1'...'", shown)}
    return True


def keep_out_of_logs() -> None:
    """Hide secrets in Scrapy's log line of overridden settings."""
    # A filter that is there already is not added again.
    logging.getLogger("scrapy.crawler").addFilter(_redact)
