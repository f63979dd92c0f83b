"""Import the packages of the extras that pyproject.toml names."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from krowlspider.errors import KrowlError, install_with


def need(module: str, extra: str = "corpus") -> Any:
    """Return a module of an extra.

    :raises KrowlError: it is not installed
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise KrowlError(f"{package} is not installed: {install_with(extra)}") from error
