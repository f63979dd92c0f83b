"""Secrets among the settings: where they are read from, and that no log has them."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.errors import SettingsError

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

# Each may be in a file, which the setting of its name and _FILE names.
IN_FILES = ("KROWL_CONSUL_TOKEN", "KROWL_RING", "KROWL_RING_SECRET", "REDIS_URL")
# Settings of Scrapy with a secret in them: it logs all of its own that are set.
_LOGGED = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("FTP_PASSWORD", "TELNETCONSOLE_PASSWORD"),
)
_TEXT = r"""(?:\s*(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))+"""
_SHOWN = re.compile(rf"('(?:{'|'.join(_LOGGED)})': \(?){_TEXT}")


def read_files(settings: BaseSettings) -> None:
    """Put the secrets that are in files in their settings; done again, nothing is left to do.

    :raises SettingsError: a file cannot be read or is empty, or a secret is given besides
    """
    for name in IN_FILES:
        source = f"{name}_FILE"
        if not (path := settings.get(source)):
            continue
        if settings.get(name):
            raise SettingsError(f"{name} and {source} are both given: give one of them")
        priority = settings.getpriority(source)
        assert priority is not None
        settings.set(name, _read(source, path), priority)
        settings.set(source, "", priority)


def _read(source: str, path: str) -> str:
    try:
        # The members of a ring may have a line each.
        value = ",".join(Path(path).read_text(encoding="utf-8").split())
    except (OSError, UnicodeDecodeError, TypeError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise SettingsError(f"{source}={path} cannot be read: {why}") from error
    if not value:
        raise SettingsError(f"{source}={path} is empty: write the value into it")
    return value


class _Redaction(logging.Filter):
    """Takes the secrets out of what Scrapy logs of its settings."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, dict) and isinstance(shown := record.args.get("settings"), str):
            record.args = {**record.args, "settings": _SHOWN.sub(r"\1'...'", shown)}
        return True


_REDACTION = _Redaction()


def keep_out_of_logs() -> None:
    """Have no secret in Scrapy's list of overridden settings."""
    # One that is there already is not added again.
    logging.getLogger("scrapy.crawler").addFilter(_REDACTION)
