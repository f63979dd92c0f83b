"""Mistakes that are told in one line instead of a traceback."""

from __future__ import annotations


class KrowlError(Exception):
    """A mistake of the user or of the machine. The message is one line: it names the input that is
    wrong and the way out. A command prints it and exits with status 2.
    """


class SettingsError(KrowlError):
    """A setting is unknown, missing or impossible."""


class SeedsError(KrowlError):
    """The seeds cannot be read."""


class JobError(KrowlError):
    """The job folder cannot be used: not writable, in use, or of another job."""
