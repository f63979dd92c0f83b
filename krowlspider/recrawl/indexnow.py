"""IndexNow: read what a site submits, and judge its key.

A site names pages that have changed, with a key that also stands in a file of the site. The rules
and the statuses are those of https://www.indexnow.org/documentation.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct

from krowlspider.urls.canonical import authority_of, host_of, normalise

if TYPE_CHECKING:
    from collections.abc import Sequence

# URLs of a submission, as the protocol has it, and bytes of its body: 200 for each URL.
URLS_MAX = 10_000
BODY_MAX = 2_000_000
# Bytes of a key file that are read, and of which lines one is the key.
FILE_MAX = 4096
# Seconds for which a key is known to be right, or wrong; and for which a submission waits for its
# check.
RIGHT_FOR, WRONG_FOR = 86_400.0, 3600.0
EXPIRES = 86_400.0
# Seconds for which a key that was right has checks of its own: anybody may use up the others.
PROVEN_FOR = 30 * 86_400.0
# Of one host: checks that wait, checks a day, and URLs a day that are taken or wait.
WAITING_MAX = 4
CHECKS_A_DAY = 20
URLS_A_DAY = 50_000
# URLs of all hosts that wait for the checks of keys, and hosts that are known; the one that has
# submitted nothing for the longest is forgotten first.
HELD_MAX = 500_000
HOSTS_MAX = 4096
_DAY = 86_400.0
_KEY = re.compile(r"[A-Za-z0-9-]{8,128}")
_HOST = re.compile(r"[^\s/?#@\\]{1,260}")
OK, WAITS, BAD_FORM, BAD_KEY, UNFIT, TOO_MANY = 200, 202, 400, 403, 422, 429
# Not in the protocol, but what HTTP has for it.
TOO_LARGE = 413


class Refused(Exception):
    """A submission that is not taken, with the status of its answer, and the reason under which
    it is counted."""

    def __init__(self, status: int, reason: str, text: str):
        super().__init__(text)
        self.status = status
        self.reason = reason


class Submission(NamedTuple):
    """URLs of a host, normalised, that it says have changed; ``location`` is that of its key."""

    host: str
    key: str
    location: str
    urls: tuple[str, ...]


class _Body(Struct, rename="camel"):
    host: str
    key: str
    url_list: list[str]
    key_location: str = ""


def read_body(body: bytes, url_max: int) -> Submission:
    """Return the submission in the body of a POST. A URL may have ``url_max`` characters.

    :raises Refused: it is none
    """
    if len(body) > BODY_MAX:
        raise Refused(TOO_LARGE, "size", f"the body is longer than {BODY_MAX:,} bytes")
    try:
        found = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Refused(BAD_FORM, "form", f"no submission of IndexNow: {error}"[:200]) from error
    return _submission(found.host, found.key, found.key_location, found.url_list, url_max)


def read_query(url: str, key: str, location: str, url_max: int) -> Submission:
    """Return the submission of a GET.

    :raises Refused: it is none
    """
    if not (url and key):
        raise Refused(BAD_FORM, "form", "give ?url= and &key=")
    if len(url) > url_max or (whole := normalise(url)) is None:
        raise _unfit(url)
    return _submission(host_of(whole), key, location, [url], url_max)


def _submission(
    host: str, key: str, location: str, urls: Sequence[str], url_max: int
) -> Submission:
    site = normalise(f"https://{host}/") if _HOST.fullmatch(host) else None
    if site is None or not urls:
        raise Refused(BAD_FORM, "form", "give a host, and URLs of it in urlList")
    if len(urls) > URLS_MAX:
        raise Refused(UNFIT, "url", f"more than {URLS_MAX:,} URLs: give them in parts")
    if not _KEY.fullmatch(key):
        raise Refused(UNFIT, "key", "a key has 8 to 128 letters, digits and dashes")
    name = host_of(site)
    known = [_of_host(url, name, url_max) for url in urls]
    if sum(map(len, known)) > BODY_MAX:
        # Percent-encoding may have made them three times as long.
        raise Refused(UNFIT, "size", f"the URLs have over {BODY_MAX:,} characters: give fewer")
    if location:
        location = _of_host(location, name, url_max)
    else:
        location = f"{authority_of(known[0])}/{key}.txt"
    folder = _path(location).partition("?")[0].rpartition("/")[0] + "/"
    if wrong := next((url for url in known if not _path(url).startswith(folder)), ""):
        raise Refused(UNFIT, "url", f"the key in {folder} is not for {wrong[:200]}")
    return Submission(name, key, location, tuple(dict.fromkeys(known)))


def _of_host(url: str, host: str, url_max: int) -> str:
    """Return a URL of the host, normalised."""
    whole = normalise(url) if len(url) <= url_max else None
    if whole is None or len(whole) > url_max or host_of(whole) != host:
        raise _unfit(url)
    return whole


def _unfit(url: str) -> Refused:
    return Refused(UNFIT, "url", f"no URL of the host: {url[:200]}")


def _path(url: str) -> str:
    return url[len(authority_of(url)) :]


def is_right(status: int, body: bytes, key: str) -> bool | None:
    """Return whether the answer for a key file has the key: as one of its lines. None: it says
    nothing, as an error that may pass."""
    if status == 200:
        lines = body[:FILE_MAX].removeprefix(b"\xef\xbb\xbf").split(b"\n")
        return key.encode() in (line.strip() for line in lines)
    return None if status >= 400 and status not in (401, 403, 404, 410) else False


class _Host(Struct, eq=False):
    """What a host has submitted: URLs and checks of the day that began at ``since``; ``rechecks``
    are those of keys that were right before.

    ``waiting`` has time, key with location, and number of URLs of each check that waits;
    ``checked`` when a key at a location was found right or wrong. Of those that were right it has
    the last CHECKS_A_DAY.
    """

    since: float
    urls: int = 0
    checks: int = 0
    rechecks: int = 0
    waiting: list[tuple[float, tuple[str, str], int]] = []
    checked: dict[tuple[str, str], tuple[float, bool]] = {}


class Keys:
    """Knows which keys are right, and bounds what is submitted. Times are monotonic seconds.

    It is in memory alone: a start checks each key again.
    """

    def __init__(self) -> None:
        self._hosts: OrderedDict[str, _Host] = OrderedDict()
        self.held = 0

    def take(self, submission: Submission, now: float) -> bool:
        """Count a submission. Return whether its key is known to be right; else its key must be
        checked, after which `checked` is called.

        :raises Refused: its key is wrong, or too much is submitted
        """
        host, count = self._host(submission.host, now), len(submission.urls)
        place = submission.key, submission.location
        known = host.checked.get(place)
        is_proven = known is not None and known[1]
        if known is not None and not is_proven:
            raise Refused(BAD_KEY, "key", f"{submission.location} does not have the key")
        if host.urls + count > URLS_A_DAY:
            raise Refused(TOO_MANY, "flood", f"more than {URLS_A_DAY:,} URLs of a host a day")
        is_known = known is not None and now - known[0] < RIGHT_FOR
        if not is_known:
            self._wait(host, place, count, now, is_proven=is_proven)
        host.urls += count
        return is_known

    def _wait(
        self, host: _Host, place: tuple[str, str], count: int, now: float, *, is_proven: bool
    ) -> None:
        if len(host.waiting) >= WAITING_MAX:
            raise Refused(TOO_MANY, "flood", "keys of this host are being checked: try again later")
        if (host.rechecks if is_proven else host.checks) >= CHECKS_A_DAY:
            raise Refused(TOO_MANY, "flood", f"more than {CHECKS_A_DAY} checks of a host a day")
        if self.held + count > HELD_MAX:
            for each in self._hosts.values():
                self._expire(each, now)
        if self.held + count > HELD_MAX:
            raise Refused(TOO_MANY, "flood", "too many URLs wait for the checks of their keys")
        host.waiting.append((now, place, count))
        host.rechecks += is_proven
        host.checks += not is_proven
        self.held += count

    def checked(self, submission: Submission, now: float, *, right: bool | None) -> None:
        """Note what the check of a key has found, as `is_right`."""
        host = self._host(submission.host, now)
        place = submission.key, submission.location
        for each in host.waiting:
            if each[1] == place:
                self._end(host, each)
                break
        if right is None:
            return
        # The last one is at the end.
        host.checked.pop(place, None)
        host.checked[place] = now, right
        proven = [each for each, (_, is_right) in host.checked.items() if is_right]
        for old in proven[:-CHECKS_A_DAY]:
            del host.checked[old]

    def _host(self, name: str, now: float) -> _Host:
        host = self._hosts.pop(name, None) or _Host(now)
        self._hosts[name] = host
        if len(self._hosts) > HOSTS_MAX:
            _, oldest = self._hosts.popitem(last=False)
            for each in [*oldest.waiting]:
                self._end(oldest, each)
        if now - host.since >= _DAY:
            host.since, host.urls, host.checks, host.rechecks = now, 0, 0, 0
        self._expire(host, now)
        return host

    def _expire(self, host: _Host, now: float) -> None:
        for each in [each for each in host.waiting if now - each[0] >= EXPIRES]:
            self._end(host, each)
        for place, (at, right) in [*host.checked.items()]:
            if now - at >= (PROVEN_FOR if right else WRONG_FOR):
                del host.checked[place]

    def _end(self, host: _Host, waiting: tuple[float, tuple[str, str], int]) -> None:
        host.waiting.remove(waiting)
        self.held -= waiting[2]
