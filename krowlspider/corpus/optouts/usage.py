"""Pure: what a Content-Usage refuses (draft-ietf-aipref-vocab, draft-ietf-aipref-attach)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.corpus.optouts.dictionary import tokens_in
from krowlspider.corpus.optouts.patterns import matches

if TYPE_CHECKING:
    from collections.abc import Iterable

# Labels of the vocabulary as of its revision 8, and those that only earlier ones have: archives
# hold files that were written by these.
_CURRENT = ("train-ai", "ai-use", "search")
_EARLIER = ("train-genai", "genai", "ai", "tdm", "all", "bots", "ai-output", "inference")
# Uses of which training is a part, and labels that speak of training itself.
_WIDER = frozenset({"tdm", "all", "bots", "ai"})
_TRAINING = frozenset({"train-ai", "train-genai", "genai", "ai"})
USAGE_SIGNALS = frozenset(f"{label}=n" for label in (*_CURRENT, *_EARLIER))


def usage_signals(value: str) -> set[str]:
    """Return what a statement refuses: "train-ai=n" and the like.

    A wider use that is refused is left out where the statement allows training itself, which then
    has precedence (revision 4, section 5).
    """
    tokens = tokens_in(value) or {}
    refused = {label for label, answer in tokens.items() if answer == "n"}
    if any(tokens.get(label) == "y" for label in _TRAINING):
        refused -= _WIDER
    return {f"{label}=n" for label in refused} & USAGE_SIGNALS


def rule_in(value: str) -> tuple[str, list[str]]:
    """Return the path of a rule of robots.txt, empty for each path, and what it refuses."""
    text = value.lstrip(" \t")
    path = ""
    if text.startswith("/"):
        path, *rest = text.replace("\t", " ").split(" ", 1)
        text = rest[0].strip(" ") if rest else ""
    return path, sorted(usage_signals(text.strip(" \t")))


def refused_at(
    path: str, rules: Iterable[tuple[str, list[str]]], access: Iterable[tuple[str, bool]]
) -> list[str]:
    """Return what the longest rules that match a path refuse.

    Of equally long ones each counts. A path that may not be crawled by ``access``, patterns and
    whether they allow, has no preferences.
    """
    found = [(len(pattern), names) for pattern, names in rules if matches(pattern, path)]
    if not found:
        return []
    longest = max(length for length, _ in found)
    allowed = [(len(pattern), allows) for pattern, allows in access if matches(pattern, path)]
    if allowed and not max(allowed)[1]:
        return []
    return sorted({name for length, names in found if length == longest for name in names})
