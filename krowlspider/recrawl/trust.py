"""Decide whether a host's validators are worth sending.

A tag or date that stays while the text changes would answer 304 for a changed page. One that
changes with equal bytes never answers 304. Tags and dates are judged apart, from the answers that
came in full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from krowlspider.recrawl.validators import IN_FULL_EVERY, Validators, http_date, same_tag

if TYPE_CHECKING:
    from typing import Self

# The most that a count holds: one byte. At more, all counts of a record are halved.
COUNT_MAX = 255
# Changes with equal bytes before a validator can count as useless.
_CHURNED = 4


class Record(NamedTuple):
    """How a host's validators of one kind behaved. Each count is at most COUNT_MAX.

    ``held``: the same validator with the same text. ``lied``: the same with other text.
    ``churned``: another with equal bytes. ``not_modified``: 304 was answered.
    """

    held: int = 0
    lied: int = 0
    churned: int = 0
    not_modified: int = 0

    @property
    def is_trusted(self) -> bool:
        """Return whether a validator of this kind is sent.

        After a lie the host is asked in full until lies are as rare as the sample that finds them.
        """
        lies = self.lied * IN_FULL_EVERY > self.held + self.lied
        useless = self.churned >= _CHURNED and self.churned > self.held + self.not_modified
        return not (lies or useless)

    def counted(self, name: str) -> Self:
        """Return the record with one more of ``name``, a count of full answers."""
        more = self._replace(**{name: getattr(self, name) + 1})
        return type(self)(*(count // 2 for count in more)) if max(more) > COUNT_MAX else more


class Trust(NamedTuple):
    """What a host's tags and dates are worth: eight bytes of its record."""

    tags: Record = Record()
    dates: Record = Record()

    def __bytes__(self) -> bytes:
        return bytes((*self.tags, *self.dates))

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Return what ``bytes`` made eight bytes of. No bytes: nothing is known."""
        return cls(Record(*data[:4]), Record(*data[4:8]))


def trusted(trust: Trust, stored: Validators) -> Validators:
    """Return the validators of a page that may be sent to its host."""
    return Validators(
        stored.etag if trust.tags.is_trusted else b"",
        stored.last_modified if trust.dates.is_trusted else b"",
    )


def after_content(
    trust: Trust,
    stored: Validators,
    answered: Validators,
    *,
    text_changed: bool,
    bytes_changed: bool,
) -> Trust:
    """Return the trust after an answer with content, given the validators before and after it."""
    tags, dates = trust
    if stored.etag and answered.etag:
        same = same_tag(stored.etag, answered.etag)
        tags = _judged(tags, same=same, text_changed=text_changed, bytes_changed=bytes_changed)
    if stored.last_modified and answered.last_modified:
        same = http_date(stored.last_modified) == http_date(answered.last_modified)
        dates = _judged(dates, same=same, text_changed=text_changed, bytes_changed=bytes_changed)
    return Trust(tags, dates)


def after_not_modified(trust: Trust, sent: Validators) -> Trust:
    """Return the trust after a 304 to these conditions.

    It shows that they are understood. It does not show that the page is as it was.
    """
    pairs = zip(trust, sent, strict=True)
    return Trust(*(_understood(record) if value else record for record, value in pairs))


def _understood(record: Record) -> Record:
    # No halving: an answer that proves nothing must not wear lies away.
    return record._replace(not_modified=min(record.not_modified + 1, COUNT_MAX))


def _judged(record: Record, *, same: bool, text_changed: bool, bytes_changed: bool) -> Record:
    if same:
        return record.counted("lied" if text_changed else "held")
    return record if bytes_changed else record.counted("churned")
