"""Decide whether a host's validators are worth sending.

A tag or date that stays while the text changes would answer 304 for a changed page. One that
changes with equal bytes never answers 304. Tags and dates are judged apart, from the answers that
came in full. A server may also answer 304 to each condition, while its tags are right: then only
requests without conditions bring changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from krowlspider.recrawl.validators import (
    IN_FULL_EVERY,
    NO_VALIDATORS,
    Asked,
    Validators,
    http_date,
    same_tag,
)

if TYPE_CHECKING:
    from typing import Self

# The most that a count holds: one byte. At more, all counts of a record are halved.
COUNT_MAX = 255
# Changes with equal bytes before a validator can count as useless.
_CHURNED = 4
# Changes in a row that only the sample brings before its host is taken to hide them. The chance of
# an honest host is IN_FULL_EVERY to the power of minus this number.
_HIDDEN = 2


class ValidatorRecord(NamedTuple):
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
    """What a host's tags and dates are worth: nine bytes of its record.

    ``hidden``: changes that requests of the sample brought since a conditional one brought any.
    """

    tags: ValidatorRecord = ValidatorRecord()
    dates: ValidatorRecord = ValidatorRecord()
    hidden: int = 0

    @property
    def hides_changes(self) -> bool:
        """Return whether the host answers 304 for pages that have changed.

        Then conditions are sent with the sample alone, until one of these brings a change.
        """
        return self.hidden >= _HIDDEN

    def __bytes__(self) -> bytes:
        return bytes((*self.tags, *self.dates, self.hidden))

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Return what ``bytes`` made. No bytes: nothing is known. Earlier versions made eight."""
        return cls(ValidatorRecord(*data[:4]), ValidatorRecord(*data[4:8]), *data[8:9])


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
    tags, dates, hidden = trust
    if stored.etag and answered.etag:
        same = same_tag(stored.etag, answered.etag)
        tags = _judged(tags, same=same, text_changed=text_changed, bytes_changed=bytes_changed)
    if stored.last_modified and answered.last_modified:
        same = http_date(stored.last_modified) == http_date(answered.last_modified)
        dates = _judged(dates, same=same, text_changed=text_changed, bytes_changed=bytes_changed)
    return Trust(tags, dates, hidden)


def after_change(trust: Trust, stored: Validators, answered: Validators, asked: Asked) -> Trust:
    """Return the trust after an answer with another main text.

    Call it before `after_content`. A validator that stays is a lie of its own kind, which does not
    count here.
    """
    sent = trusted(trust, stored)
    stays = (sent.etag and same_tag(sent.etag, answered.etag)) or (
        sent.last_modified and http_date(sent.last_modified) == http_date(answered.last_modified)
    )
    if asked is Asked.IN_FULL or sent == NO_VALIDATORS or stays:
        return trust
    conditional = asked is Asked.CONDITIONALLY
    return trust._replace(hidden=0 if conditional else min(trust.hidden + 1, COUNT_MAX))


def after_not_modified(trust: Trust, sent: Validators) -> Trust:
    """Return the trust after a 304 to these conditions.

    It shows that they are understood. It does not show that the page is as it was.
    """
    return trust._replace(
        tags=_understood(trust.tags) if sent.etag else trust.tags,
        dates=_understood(trust.dates) if sent.last_modified else trust.dates,
    )


def _understood(record: ValidatorRecord) -> ValidatorRecord:
    # No halving: an answer that proves nothing must not wear lies away.
    return record._replace(not_modified=min(record.not_modified + 1, COUNT_MAX))


def _judged(
    record: ValidatorRecord, *, same: bool, text_changed: bool, bytes_changed: bool
) -> ValidatorRecord:
    if same:
        return record.counted("lied" if text_changed else "held")
    return record if bytes_changed else record.counted("churned")
