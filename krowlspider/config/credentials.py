"""Secrets among the settings: read them from files, and keep them out of logs."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.errors import SettingsError

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

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
