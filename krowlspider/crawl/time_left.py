"""How far a crawl is from the limits at which it ends by itself."""

from __future__ import annotations

from dataclasses import dataclass

from krowlspider.frontier.admin.words import counted, duration


@dataclass(slots=True)
class Limits:
    """Pages done, answers received, and seconds; 0 or None is no limit."""

    pages: int | None = None
    answers: int = 0
    seconds: float = 0.0


def progress(limits: Limits, *, pages: int, answers: int, seconds: float) -> str:
    """Return how many pages of how many are done, and the time until the first limit is reached.

    The time is estimated from the average rate in ``seconds``, and left out while there is none.
    """
    text = (
        f"{pages:,} of {counted(limits.pages, 'page')}" if limits.pages else counted(pages, "page")
    )
    if limits.answers:
        text += f", {answers:,} of {limits.answers:,} answers"
    left = [
        seconds / count * max(0, limit - count)
        for count, limit in ((pages, limits.pages), (answers, limits.answers))
        if limit and count
    ]
    if limits.seconds:
        left.append(max(0.0, limits.seconds - seconds))
    return f"{text}, {duration(min(left))} left" if left else text
