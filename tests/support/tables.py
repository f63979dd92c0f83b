"""Tables whose rows are one test.

Each row of `pytest.mark.parametrize` is a test of its own. That takes milliseconds, and every
worker collects all of them.
"""

from __future__ import annotations

import functools
from inspect import Signature, signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def table(
    names: str | Sequence[str], rows: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call the test with each row. The exception of the first that fails has the row as a note.

    ``names`` and ``rows`` are those of `parametrize`. For tests without fixtures or state.
    """
    keys = names.replace(",", " ").split() if isinstance(names, str) else [*names]
    is_bare = isinstance(names, str) and len(keys) == 1
    values = [dict(zip(keys, (row,) if is_bare else row, strict=True)) for row in rows]
    assert values

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def whole(**others: object) -> None:
            for value in values:
                try:
                    test(**value, **others)
                # Those of pytest, as of `pytest.raises`, derive from BaseException.
                except BaseException as error:
                    error.add_note(f"in the row {value!r}")
                    raise

        left = [each for name, each in signature(test).parameters.items() if name not in keys]
        whole.__signature__ = Signature(left)  # type: ignore[attr-defined]
        return whole

    return decorated
