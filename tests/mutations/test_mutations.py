"""The mutations fit the code; ``python -m tests.mutations`` runs them."""

from __future__ import annotations

from tests.mutations.__main__ import MUTATIONS, ROOT
from tests.mutations.mutation import StaleError


def test_each_mutation_fits_the_code() -> None:
    stale = []
    for mutation in MUTATIONS:
        path = ROOT / mutation.path
        try:
            mutation.apply(path.read_text() if path.exists() else "")
        except StaleError as error:
            stale.append(f"{mutation.name}: {error}")
    assert stale == []
