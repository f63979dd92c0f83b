from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.gemini.protocol import (
    HEADER_MAX,
    META_MAX,
    URL_MAX,
    GeminiServer,
    Header,
    MalformedHeader,
    MediaType,
    StatusKind,
    meaning_of,
    media_type,
    read_header,
    request_line,
    seconds_in,
    server_of,
)
from krowlspider.gemini.reader import AnswerReader


@pytest.mark.parametrize(
    ("url", "host", "port", "server"),
    [
        ("gemini://a.test/", "a.test", 1965, "a.test:1965"),
        ("gemini://a.test:1966/x?y", "a.test", 1966, "a.test:1966"),
        ("gemini://a.test.:1965/", "a.test", 1965, "a.test:1965"),
        ("gemini://[::1]/", "::1", 1965, "[::1]:1965"),
        ("gemini://127.0.0.1:7?q", "127.0.0.1", 7, "127.0.0.1:7"),
    ],
)
def test_the_server_of_a_url(url: str, host: str, port: int, server: str) -> None:
    assert server_of(url) == GeminiServer(host, port)
    assert server_of(url).server == server


@pytest.mark.parametrize(
    "url",
    [
        "http://a.test/",
        "gemini:a.test",
        "gemini:///x",
        "gemini://me@a.test/",
        "gemini://a.test:0/",
        "gemini://a.test:70000/",
        "gemini://a:b:c/",
        "gemini://[::1/",
    ],
)
def test_what_is_no_gemini_url_has_no_server(url: str) -> None:
    with pytest.raises(ValueError, match="gemini URL"):
        server_of(url)


def test_a_request_is_the_url_and_a_line_end() -> None:
    longest = "gemini://a.test/".ljust(URL_MAX, "x")
    assert request_line("gemini://a.test/a%20b?c") == b"gemini://a.test/a%20b?c\r\n"
    assert request_line(longest) == longest.encode() + b"\r\n"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("gemini://a.test/".ljust(URL_MAX + 1, "x"), "1025 bytes"),
        ("gemini://a.test/#b", "fragment"),
        ("gemini://a.test/a b", "not escaped"),
        ("gemini://a.test/\r\ngemini://b.test/", "not escaped"),
        ("gemini://a.test/\x00", "not escaped"),
        ("gemini://a.test/é", "not escaped"),
        ("gemini://me:secret@a.test/", "user information"),
    ],
)
def test_no_request_is_made_of_other_urls(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        request_line(url)


# Gemini network protocol specification 0.24.1, section "Status codes".
STATUSES = {
    10: (StatusKind.INPUT, "input"),
    11: (StatusKind.INPUT, "sensitive_input"),
    20: (StatusKind.SUCCESS, "success"),
    30: (StatusKind.REDIRECT, "temporary_redirect"),
    31: (StatusKind.REDIRECT, "permanent_redirect"),
    40: (StatusKind.TEMPORARY_FAILURE, "temporary_failure"),
    41: (StatusKind.TEMPORARY_FAILURE, "server_unavailable"),
    42: (StatusKind.TEMPORARY_FAILURE, "cgi_error"),
    43: (StatusKind.TEMPORARY_FAILURE, "proxy_error"),
    44: (StatusKind.SLOW_DOWN, "slow_down"),
    50: (StatusKind.PERMANENT_FAILURE, "permanent_failure"),
    51: (StatusKind.PERMANENT_FAILURE, "not_found"),
    52: (StatusKind.PERMANENT_FAILURE, "gone"),
    53: (StatusKind.PERMANENT_FAILURE, "proxy_request_refused"),
    59: (StatusKind.PERMANENT_FAILURE, "bad_request"),
    60: (StatusKind.CERTIFICATE, "certificate_required"),
    61: (StatusKind.CERTIFICATE, "certificate_not_authorised"),
    62: (StatusKind.CERTIFICATE, "certificate_not_valid"),
}


@pytest.mark.parametrize("status", range(10, 70))
def test_each_status_has_a_meaning(status: int) -> None:
    """An undefined one that of its first digit."""
    assert meaning_of(status) == STATUSES.get(status, STATUSES[status // 10 * 10])


@pytest.mark.parametrize(
    ("line", "header"),
    [
        (b"20 text/gemini\r\n", Header(20, "text/gemini", 16)),
        (b"20 text/gemini; lang=de\r\n# x\r\n", Header(20, "text/gemini; lang=de", 25)),
        (b"20\r\n", Header(20, "", 4)),
        (b"20 \r\n", Header(20, "", 5)),
        (b"20   text/plain  \r\n", Header(20, "text/plain", 19)),
        (b"51\r\n", Header(51, "", 4)),
        (b"51 Nicht gefunden \xc3\xa4\r\n", Header(51, "Nicht gefunden ä", 22)),
        (b"31 /x\r\nbody", Header(31, "/x", 7)),
        (b"20 %b\r\n" % (b"x" * META_MAX), Header(20, "x" * META_MAX, HEADER_MAX)),
        (b"29 a/b\r\n", Header(29, "a/b", 8)),
    ],
)
def test_a_header_is_read(line: bytes, header: Header) -> None:
    assert read_header(line) == header


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (b"\xef\xbb\xbf20 text/gemini\r\n", "byte order mark"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no status"),
        (b"2\r\n", "no status"),
        (b"\r\n", "no status"),
        ("²0 text/gemini\r\n".encode(), "no status"),
        (b"99 what\r\n", "status 99"),
        (b"09 what\r\n", "status 09"),
        (b"70 what\r\n", "status 70"),
        (b"200 OK\r\n", "no space"),
        (b"20\ttext/gemini\r\n", "no space"),
        (b"20 text/gemini\n# body\n", "line feed"),
        (b"20 text/gemini\n# body\r\n", "control character"),
        (b"20 text/\x00gemini\r\n", "control character"),
        (b"51 \x1b[2J\r\n", "control character"),
        (b"51 \xff\r\n", "not UTF-8"),
        (b"20 %b\r\n" % (b"x" * (META_MAX + 1)), "no end within"),
        (b"20 %b\r\n" % (b"x" * 5000), "no end within"),
        (b"30\r\n", "without META"),
        (b"10 \r\n", "without META"),
    ],
)
def test_a_malformed_header_is_refused_with_the_reason(start: bytes, reason: str) -> None:
    with pytest.raises(MalformedHeader, match=reason):
        read_header(start)


@pytest.mark.parametrize("start", [b"", b"2", b"20", b"20 ", b"20 text/gemini", b"20 a/b\r"])
def test_a_header_may_come_in_pieces(start: bytes) -> None:
    assert read_header(start) is None


@pytest.mark.parametrize(
    "start", [b"x", b"99", b"20 a\n", b"\xef\xbb\xbf", b"20 " + b"x" * (HEADER_MAX - 3)]
)
def test_what_becomes_no_header_is_refused_early(start: bytes) -> None:
    with pytest.raises(MalformedHeader):
        read_header(start)


@given(st.binary(max_size=2 * HEADER_MAX))
def test_any_bytes_are_a_header_or_are_refused(start: bytes) -> None:
    try:
        header = read_header(start)
    except MalformedHeader:
        return
    if header is None:
        assert len(start) < HEADER_MAX
    else:
        assert start[: header.size].endswith(b"\r\n")
        assert 10 <= header.status <= 69


@given(st.text(max_size=META_MAX))
def test_any_meta_has_a_media_type(meta: str) -> None:
    found = media_type(meta)
    assert "/" in found.essence
    assert len(found.languages) <= 10


@pytest.mark.parametrize(
    ("meta", "found"),
    [
        ("", MediaType("text/gemini", "utf-8", ())),
        ("text/gemini", MediaType("text/gemini", "utf-8", ())),
        ("Text/Gemini;Charset=UTF-8", MediaType("text/gemini", "utf-8", ())),
        ("text/gemini; charset=iso-8859-1", MediaType("text/gemini", "iso-8859-1", ())),
        ('text/gemini; charset="utf-16"', MediaType("text/gemini", "utf-16", ())),
        ("text/gemini; lang=de", MediaType("text/gemini", "utf-8", ("de",))),
        ('text/gemini; lang="en,fr-CA"', MediaType("text/gemini", "utf-8", ("en", "fr-CA"))),
        ("text/gemini; lang=en, fr", MediaType("text/gemini", "utf-8", ("en", "fr"))),
        ("text/gemini; lang=<script>", MediaType("text/gemini", "utf-8", ())),
        ("text/gemini; lang=de; lang=fr", MediaType("text/gemini", "utf-8", ("de",))),
        ("text/plain; format=flowed; lang = en", MediaType("text/plain", "utf-8", ("en",))),
        ("text/plain;", MediaType("text/plain", "utf-8", ())),
        ('text/plain; a="x; charset=b"; lang=en', MediaType("text/plain", "utf-8", ("en",))),
        ("image/png", MediaType("image/png", "", ())),
        ("application/atom+xml; charset=utf-8", MediaType("application/atom+xml", "utf-8", ())),
        ("gemini", MediaType("application/octet-stream", "", ())),
        ("a/b c", MediaType("application/octet-stream", "", ())),
    ],
)
def test_a_media_type_is_read_with_charset_and_languages(meta: str, found: MediaType) -> None:
    assert media_type(meta) == found


@pytest.mark.parametrize(
    ("meta", "seconds"),
    [
        ("30", 30),
        ("0", 0),
        ("", None),
        ("slow down", None),
        ("-1", None),
        ("3" * 10, None),
        ("²", None),
    ],
)
def test_seconds_are_read_only_where_the_older_specification_has_them(
    meta: str, seconds: int | None
) -> None:
    assert seconds_in(meta) == seconds


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_an_answer_in_pieces_is_kept_byte_for_byte(size: int) -> None:
    answer = b"20 text/plain\r\na\x00b\r\n\xff" * 40
    reader = AnswerReader(len(answer))
    for at in range(0, len(answer), size):
        reader.feed(answer[at : at + size])
    assert (reader.done, reader.ends_at_close, reader.received) == (False, True, len(answer))
    reader.eof()
    assert reader.done
    assert reader.response_bytes == answer
    assert reader.body_of(answer) == answer[15:]
    assert reader.body_size == len(answer) - 15


def test_what_follows_the_header_of_a_redirect_is_not_kept() -> None:
    reader = AnswerReader(10)
    reader.feed(b"30 /x\r\n<html>" + b"x" * 100)
    reader.feed(b"x" * 100)
    assert reader.done
    assert (reader.response_bytes, reader.body_size) == (b"30 /x\r\n", 0)
    assert reader.head is not None
    assert reader.head.headers == [(b"Location", b"/x")]
