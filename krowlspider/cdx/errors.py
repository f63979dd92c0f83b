"""The error of a query that cannot be answered."""

from __future__ import annotations

from krowlspider.errors import KrowlError


class QueryError(KrowlError):
    """A query is wrong. The message names the parameter and the way out."""
