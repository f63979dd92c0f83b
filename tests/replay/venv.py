"""The venv of the tools that judge the archive: ``wb-manager``, ``cdxj-indexer``, ``wacz`` ..."""

from __future__ import annotations

from tests.support.venvs import Venv

tool = Venv("replay").tool
