"""Seeds of random walks: a few for the quick tests, and more for the slow ones."""

from __future__ import annotations

import pytest


def seeds(quick: int, slow: int) -> pytest.MarkDecorator:
    """Run a test with ``quick`` seeds, and with ``slow`` further ones if slow tests are run."""
    more = [pytest.param(each, marks=pytest.mark.slow) for each in range(quick, quick + slow)]
    return pytest.mark.parametrize("seed", [*range(quick), *more])
