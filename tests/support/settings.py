"""The project's settings as a crawl has them, and the error that refuses them."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy.settings import Settings

from krowlspider.config.validation import validate
from krowlspider.errors import SettingsError


def project_settings(**changes: Any) -> Settings:
    """The project's settings and a contact, with ``changes`` as ``-s`` would set them."""
    settings = Settings()
    settings.setmodule("krowlspider.settings", priority="project")
    settings.setdict({"KROWL_CONTACT": "you@example.org", **changes}, priority="cmdline")
    return settings


def refusal(**changes: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        validate(project_settings(**changes))
    return str(caught.value)
