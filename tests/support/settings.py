"""The project's settings as in a crawl, and the errors of invalid ones."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy.settings import Settings

from krowlspider.config.validation import validate
from krowlspider.errors import SettingsError
from tests.support.crawling import CONTACT


def project_settings(**changes: Any) -> Settings:
    """Return the project's settings with a contact, and ``changes`` as set by ``-s``."""
    settings = Settings()
    settings.setmodule("krowlspider.settings", priority="project")
    settings.setdict({"KROWL_CONTACT": CONTACT, **changes}, priority="cmdline")
    return settings


def refusal(**changes: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        validate(project_settings(**changes))
    return str(caught.value)
