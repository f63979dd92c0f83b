"""Import the packages of the extra ``krowlspider[corpus]``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from krowlspider.errors import KrowlError


def need(module: str) -> Any:
    """Return a module of the extra.

    :raises KrowlError: it is not installed
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise KrowlError(
            f"{package} is not installed: pip install 'krowlspider[corpus]'"
        ) from error
