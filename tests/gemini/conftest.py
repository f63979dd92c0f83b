"""gemini URLs are accepted where a test says so, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.urls.gemini import accept_gemini

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def gemini() -> Iterator[None]:
    accept_gemini(is_on=True)
    yield
    accept_gemini(is_on=False)
