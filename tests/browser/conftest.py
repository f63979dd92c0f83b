from collections.abc import Iterator

import pytest

from tests.browser.chromium import library


@pytest.fixture(scope="module")
def with_library() -> Iterator[None]:
    """Let the crawls of a module import scrapy-playwright."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(library()))
        yield
