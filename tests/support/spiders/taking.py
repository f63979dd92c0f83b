"""An item pipeline that takes items as they are."""

from __future__ import annotations

from typing import Any


class TakingPipeline:
    def process_item(self, item: Any) -> Any:
        return item
