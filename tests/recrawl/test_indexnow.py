"""What a submission of IndexNow may be, and what becomes of its key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from krowlspider.recrawl.indexnow import (
    BODY_MAX,
    CHECKS_A_DAY,
    EXPIRES,
    HELD_MAX,
    HOSTS_MAX,
    RIGHT_FOR,
    URLS_A_DAY,
    URLS_MAX,
    WAITING_MAX,
    WRONG_FOR,
    Keys,
    Refused,
    Submission,
    is_right,
    read_body,
    read_query,
)
from tests.support.tables import table

KEY = "0123456789abcdef-AZ"
HOST = "www.example.org"
PAGE = f"https://{HOST}/a?b=1"
DAY = 86_400.0


def read(url_max: int = 2048, **fields: Any) -> Submission:
    given = {"host": HOST, "key": KEY, "urlList": [PAGE], **fields}
    return read_body(json.dumps(given).encode(), url_max)


def test_a_submission_is_read_as_the_protocol_has_it() -> None:
    found = read(urlList=[PAGE, f"http://{HOST}/b#c", PAGE], more={"is": ["passed", "over"]})
    location = f"https://{HOST}/{KEY}.txt"
    assert found == Submission(HOST, KEY, location, (PAGE, f"http://{HOST}/b"))
    assert read_query(PAGE, KEY, "", 2048) == Submission(HOST, KEY, location, (PAGE,))
    # http and https are one host, and so are names in any case.
    assert read(host=HOST.upper(), urlList=[f"HTTP://{HOST}/b"]).location.startswith("http://")
    assert read(host="a.test:8080", urlList=["http://a.test:8080/"]).host == "a.test:8080"


def test_the_folder_of_a_key_bounds_its_urls() -> None:
    place = f"https://{HOST}/shop/{KEY}.txt?a=/b/"
    inside = f"http://{HOST}/shop/1"
    assert read(keyLocation=place, urlList=[inside]).location == place
    for outside in (f"https://{HOST}/", f"https://{HOST}/shopping", f"https://{HOST}/SHOP/1"):
        with pytest.raises(Refused, match="is not for") as error:
            read(keyLocation=place, urlList=[inside, outside])
        assert (error.value.status, error.value.reason) == (422, "url")


@table(
    ("fields", "status", "reason"),
    [
        ({"host": ""}, 400, "form"),
        ({"host": f"{HOST}/a"}, 400, "form"),
        ({"host": f"user@{HOST}"}, 400, "form"),
        ({"host": 5}, 400, "form"),
        ({"urlList": []}, 400, "form"),
        ({"urlList": PAGE}, 400, "form"),
        ({"urlList": [PAGE, None]}, 400, "form"),
        ({"keyLocation": ["x"]}, 400, "form"),
        ({"key": None}, 400, "form"),
        ({"key": "short"}, 422, "key"),
        ({"key": "../../etc/passwd"}, 422, "key"),
        ({"key": "k" * 129}, 422, "key"),
        ({"urlList": [PAGE] * (URLS_MAX + 1)}, 422, "url"),
        ({"urlList": [PAGE, "https://example.org/"]}, 422, "url"),
        ({"urlList": [f"https://{HOST}:8443/"]}, 422, "url"),
        ({"urlList": ["/a"]}, 422, "url"),
        ({"urlList": [f"https://u:p@{HOST}/"]}, 422, "url"),
        ({"urlList": [f"ftp://{HOST}/"]}, 422, "url"),
        ({"urlList": [f"https://{HOST}/{'a' * 2048}"]}, 422, "url"),
        ({"keyLocation": f"https://example.org/{KEY}.txt"}, 422, "url"),
        ({"keyLocation": "x"}, 422, "url"),
    ],
)
def test_another_form_is_refused(fields: dict[str, Any], status: int, reason: str) -> None:
    with pytest.raises(Refused) as error:
        read(**fields)
    assert (error.value.status, error.value.reason) == (status, reason)
    assert len(str(error.value)) < 400


def test_urls_that_are_long_only_once_normalised_are_refused() -> None:
    """They wait in one entry, which must not be too long to be handed over."""
    urls = [f"https://{HOST}/{number}{chr(228) * 300}" for number in range(1500)]
    body = json.dumps({"host": HOST, "key": KEY, "urlList": urls}, ensure_ascii=False).encode()
    assert len(body) < BODY_MAX
    with pytest.raises(Refused) as error:
        read_body(body, 4096)
    assert (error.value.status, error.value.reason) == (422, "size")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"{", 400),
        (b"\xff", 400),
        (b'{"host": "\xff"}', 400),
        (b'{"x": ' + b"[" * 100_000, 400),
        (b" " * (BODY_MAX + 1), 413),
    ],
)
def test_bytes_of_a_stranger_are_refused(body: bytes, status: int) -> None:
    with pytest.raises(Refused) as error:
        read_body(body, 2048)
    assert error.value.status == status


@pytest.mark.parametrize(
    ("url", "key", "status"), [("", KEY, 400), (PAGE, "", 400), ("a", KEY, 422), (PAGE, "k", 422)]
)
def test_a_query_has_url_and_key(url: str, key: str, status: int) -> None:
    with pytest.raises(Refused) as error:
        read_query(url, key, "", 2048)
    assert error.value.status == status


@table(
    ("status", "body", "right"),
    [
        (200, KEY.encode(), True),
        (200, b"\xef\xbb\xbf" + KEY.encode() + b"\r\n", True),
        (200, b"another-key\n" + KEY.encode() + b"\n", True),
        (200, b"", False),
        (200, KEY.encode() + b"0", False),
        (200, b"<p>" + KEY.encode(), False),
        (404, KEY.encode(), False),
        (301, b"", False),
        (403, b"", False),
        # It may be there in an hour.
        (503, b"", None),
        (429, b"", None),
    ],
)
def test_a_key_is_a_line_of_its_file(status: int, body: bytes, right: bool | None) -> None:
    assert is_right(status, body, KEY) is right


# --- keys ---


def of(host: str = HOST, count: int = 1, key: str = KEY) -> Submission:
    return Submission(host, key, f"https://{host}/{key}.txt", (f"https://{host}/",) * count)


def refused(keys: Keys, submission: Submission, now: float) -> int:
    with pytest.raises(Refused) as error:
        keys.take(submission, now)
    return error.value.status


def test_a_key_is_checked_once_a_day() -> None:
    keys = Keys()
    assert not keys.take(of(count=3), 0)
    assert keys.held == 3
    keys.checked(of(), 1, right=True)
    assert keys.held == 0
    assert keys.take(of(), RIGHT_FOR)
    # Another key, or the same one elsewhere, is another one.
    assert not keys.take(of(key=KEY * 2), 2)
    assert not keys.take(of()._replace(location=f"https://{HOST}/shop/{KEY}.txt"), 2)
    assert not keys.take(of(), RIGHT_FOR + 1)


def test_a_wrong_key_is_refused_for_an_hour() -> None:
    keys = Keys()
    keys.take(of(), 0)
    keys.checked(of(), 1, right=False)
    assert refused(keys, of(), WRONG_FOR) == 403
    assert not keys.take(of(), WRONG_FOR + 1)


def test_a_check_that_says_nothing_leaves_the_key_unknown() -> None:
    keys = Keys()
    keys.take(of(), 0)
    keys.checked(of(), 1, right=None)
    assert keys.held == 0
    assert not keys.take(of(), 2)


def test_checks_of_a_host_are_bounded() -> None:
    keys = Keys()
    for number in range(WAITING_MAX):
        keys.take(of(key=f"{KEY}{number}"), 0)
    assert refused(keys, of(), 0) == 429
    # Another host has its own bound.
    keys.take(of("b.test"), 0)
    # What was never checked waits for a day at most.
    keys.take(of(), EXPIRES)
    assert keys.held == 2
    for number in range(CHECKS_A_DAY - 1):
        keys.checked(of(), EXPIRES, right=None)
        keys.take(of(), EXPIRES + number / 100)
    keys.checked(of(), EXPIRES, right=None)
    assert refused(keys, of(), EXPIRES + 1) == 429
    assert not keys.take(of(), EXPIRES + DAY)


def test_wrong_keys_use_up_no_check_of_a_key_that_was_right() -> None:
    keys = Keys()
    keys.take(of(), 0)
    keys.checked(of(), 0, right=True)
    for number in range(CHECKS_A_DAY):
        wrong = of()._replace(key=f"0123456{number:02}")
        keys.take(wrong, RIGHT_FOR)
        keys.checked(wrong, RIGHT_FOR, right=False)
    assert refused(keys, of()._replace(key="another0"), RIGHT_FOR + 1) == 429
    # Its own checks are bounded too, as its server may say nothing.
    for number in range(CHECKS_A_DAY):
        assert not keys.take(of(), RIGHT_FOR + number)
        keys.checked(of(), RIGHT_FOR + number, right=None)
    assert refused(keys, of(), RIGHT_FOR + CHECKS_A_DAY) == 429
    assert not keys.take(of(), 3 * DAY)
    keys.checked(of(), 3 * DAY, right=True)
    assert keys.take(of(), 3 * DAY)


def test_keys_that_were_right_are_bounded() -> None:
    keys = Keys()
    for day in range(3):
        for number in range(CHECKS_A_DAY):
            key = of()._replace(key=f"{day:04}{number:04}")
            keys.take(key, day * DAY)
            keys.checked(key, day * DAY, right=True)
    (host,) = keys._hosts.values()
    assert len(host.checked) == CHECKS_A_DAY


def test_urls_of_a_host_are_bounded_by_the_day() -> None:
    keys = Keys()
    keys.take(of(), 0)
    keys.checked(of(), 0, right=True)
    for _ in range(URLS_A_DAY // URLS_MAX - 1):
        assert keys.take(of(count=URLS_MAX), 1)
    assert refused(keys, of(count=URLS_MAX), 1) == 429
    assert keys.take(of(count=URLS_MAX - 1), 1)


def test_urls_that_wait_are_bounded() -> None:
    keys = Keys()
    for number in range(HELD_MAX // URLS_MAX):
        keys.take(of(f"{number}.test", URLS_MAX), 0)
    assert refused(keys, of(), 1) == 429
    # Those of hosts that never came back have expired.
    keys.take(of(), EXPIRES)
    assert keys.held == 1


def test_hosts_that_are_known_are_bounded() -> None:
    keys = Keys()
    for number in range(HOSTS_MAX + 5):
        keys.take(of(f"{number}.test"), 0)
    assert keys.held == HOSTS_MAX == len(keys._hosts)
