"""How many pages may still be popped: of this node's own budget, and of the cluster's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krowlspider.cluster.allowance import Allowance


class PageBudget:
    """Counts the pages that may still be popped. Whatever else is fetched is free: robots.txt,
    sitemaps, requisites, opt-out files, redirects.

    ``left`` is this node's own number, and ``total`` what it was at first; None is no limit.
    ``left`` is below 0 if pages under way have awaited more requests. ``allowance`` is this node's
    part of the cluster's limit, which is counted too; None without one. ``is_limited``: something
    else limits the pages.
    """

    def __init__(self, allowance: Allowance | None, *, is_limited: bool = False):
        self._is_limited = is_limited or allowance is not None
        self.left: int | None = None
        self.total: int | None = None
        self._allowance = allowance

    @property
    def is_limited(self) -> bool:
        """Return whether anything limits the pages."""
        return self._is_limited or self.total is not None

    @property
    def is_spent(self) -> bool:
        """Return whether no page may be popped any more, here or in the whole cluster."""
        is_used = self.left is not None and self.left <= 0
        return is_used or (self._allowance is not None and self._allowance.spent)

    def take(self) -> None:
        """Count a page that was popped."""
        self._add(-1)
        if self._allowance is not None:
            self._allowance.take()

    def give_back(self) -> None:
        """Count off a page that was popped and not fetched."""
        self._add(1)
        if self._allowance is not None:
            self._allowance.give_back()

    def _add(self, pages: int) -> None:
        if self.left is not None:
            self.left += pages
