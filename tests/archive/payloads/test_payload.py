from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.archive.payload import (
    header,
    is_plain,
    lacks_chunk,
    payload_of,
    status_of,
    without_head,
)
from krowlspider.fetch.errors import ConnectionLost, ProtocolBroken, TooLarge
from krowlspider.fetch.http.reader import ResponseReader
from tests.archive.captures import ALL_ODD, REQUEST
from tests.support.tables import table
from tests.support.work import seconds

STATUS_LINE = b"HTTP/1.1 200 OK\r\n"
CHUNKED_HEAD = STATUS_LINE + b"Transfer-Encoding: chunked\r\n\r\n"


@table("kind", ALL_ODD)
def test_the_payload_is_the_entity(kind: str) -> None:
    assert payload_of(ALL_ODD[kind].response) == ALL_ODD[kind].payload


def test_a_request_without_a_body_has_an_empty_payload() -> None:
    assert payload_of(REQUEST) == b""


def test_a_message_cut_off_in_its_head_has_an_empty_payload() -> None:
    assert payload_of(b"HTTP/1.1 200 OK\r\nServer: x\r\n") == b""


def test_bare_line_feeds_end_a_head_and_a_chunk() -> None:
    assert payload_of(b"HTTP/1.1 200 OK\nA: b\n\nabc") == b"abc"
    head = b"HTTP/1.1 200 OK\ntransfer-encoding:chunked\n\n"
    assert payload_of(head + b"3\nabc\n0\n\n") == b"abc"


@table("before", [b"\r\n", b"\n", b"\r\n\r\n", b"\n\n\n", b" \t\r\n"])
@table("line", [STATUS_LINE, b"http/1.1 200\n", b"HTTP 200 OK\r\n"])
def test_blanks_before_a_status_line_are_of_the_head(before: bytes, line: bytes) -> None:
    message = before + line + b"A: b\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n0\r\n\r\n"
    assert payload_of(message) == b"a"
    assert without_head(message) == b"1\r\na\r\n0\r\n\r\n"
    assert header(message, "A") == "b"
    assert status_of(message) == "200"
    assert not is_plain(message, b"a")


@table(
    ("line", "status"),
    [
        *((line, "200") for line in (b"HTTP/1.1 200", b"HTTP/2 200 OK", b"HTTP/1.1\t200OK")),
        *((line, "") for line in (b"HTTP/1.1 2000", b"ICY 200 OK", b"x HTTP/1.1 200", b"")),
        (b"GET / HTTP/1.1", ""),
    ],
)
def test_status_is_that_of_the_fetcher(line: bytes, status: str) -> None:
    assert status_of(line + b"\r\nA: b\r\n\r\n") == status


@table(
    "field",
    [
        b"TRANSFER-ENCODING: Chunked",
        b"transfer-encoding:gzip, chunked \t",
        b"Transfer-Encoding:\r\n chunked",
        b"Transfer-Encoding: chunked\r\n ",
        b"Transfer-Encoding: chunked,",
        b"Transfer-Encoding: , chunked , ,",
        b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding\t: chunked",
        b"Transfer-Encoding\0: chunked",
        b"Transfer-Encoding:\x0bchunked",
        b"stray line\r\nTransfer-Encoding : chunked",
        b"A: b\rTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked, chunked",
        b"Transfer-Encoding: identity, chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding:",
    ],
)
def test_chunked_coding_is_found_in_any_spelling(field: bytes) -> None:
    assert payload_of(b"HTTP/1.1 200 OK\r\n" + field + b"\r\n\r\n1\r\na\r\n0\r\n\r\n") == b"a"


@table(
    "field",
    [
        b"X-Transfer-Encoding: chunked",
        b"Transfer-Encoding: chunked, gzip",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        b"Transfer-Encoding: x-chunked",
        b"Transfer-Encoding: chun\r\n ked",
        b"X: y chunked",
        b"X: y\r\n Transfer-Encoding: chunked",
        b"\rTransfer-Encoding: chunked",
    ],
)
def test_other_codings_are_not_taken_for_chunked(field: bytes) -> None:
    assert payload_of(b"HTTP/1.1 200 OK\r\n" + field + b"\r\n\r\n1\r\na\r\n0\r\n\r\n") == (
        b"1\r\na\r\n0\r\n\r\n"
    )


def test_chunked_in_the_body_does_not_count() -> None:
    body = b"\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na"
    assert payload_of(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n" + body) == body


@pytest.mark.parametrize("chunks", [b"3\r\nabcXX2\r\nde\r\n", b"3\r\nabc\r\nFFFFFFFFFFFFFFFFF\r\n"])
def test_a_broken_chunk_ends_the_payload(chunks: bytes) -> None:
    assert payload_of(CHUNKED_HEAD + chunks) == b"abc"


@pytest.mark.parametrize(
    "body", [b"nonsense", b"<p>abc", b"5\r\r\nhello\r\n", b"0x5\r\nhello", b"F" * 16, b"\r\nab\r\n"]
)
def test_a_body_without_a_chunk_size_is_not_chunked(body: bytes) -> None:
    """Archives store decoded bodies with the head that came; the fetcher keeps such a body too."""
    assert payload_of(CHUNKED_HEAD + body) == body
    agrees(CHUNKED_HEAD + body, [])


@pytest.mark.parametrize("start", [b"", b" ", b"1f", b"1F;a=b", b"5\r", b"0", b"0" * 30])
def test_a_message_cut_in_a_chunk_size_has_no_payload(start: bytes) -> None:
    assert payload_of(CHUNKED_HEAD + start) == b""
    assert lacks_chunk(CHUNKED_HEAD + start) == bool(start)
    agrees(CHUNKED_HEAD + start, [])
    assert not lacks_chunk(CHUNKED_HEAD + b"0\r\n\r\n")
    assert lacks_chunk(CHUNKED_HEAD + b"5\r\n")


@given(chunks=st.lists(st.binary(min_size=1, max_size=40), max_size=8), cut=st.integers(0, 400))
def test_cut_chunked_message_has_the_payload_up_to_the_cut(chunks: list[bytes], cut: int) -> None:
    body = b"".join(b"%X\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    whole = b"".join(chunks)
    assert payload_of(CHUNKED_HEAD + body) == whole
    assert whole.startswith(payload_of(CHUNKED_HEAD + body[:cut]))


@pytest.mark.parametrize("head", [b"POST / HTTP/1.1\r\n", b"HTTP/1.1 101 Over\r\nUpgrade: x\r\n"])
def test_chunked_request_and_upgrade_are_decoded(head: bytes) -> None:
    assert payload_of(head + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n") == b"a"


def fetched(
    wire: bytes, cuts: list[int], max_size: int = 10**6
) -> tuple[bytes, bytes, bool] | None:
    """Return the response, its body, and whether it was whole, as the fetcher reads them; None
    without a head."""
    reader = ResponseReader("GET", max_size)
    places = [0, *sorted(cut % (len(wire) + 1) for cut in cuts), len(wire)]
    whole = False
    with suppress(ProtocolBroken, TooLarge, ConnectionLost):
        for start, end in pairwise(places):
            if start < end and not reader.done:
                reader.feed(wire[start:end])
        reader.eof()
        whole = reader.done
    if reader.head is None:
        return None
    response = reader.response_bytes
    return response, reader.body_of(response), whole


HELLO = b"hello"
# What makes a body of HELLO: sizes as servers write them, and ends.
SIZES = {
    "plain": b"5\r\n",
    "line feed": b"5\n",
    "extension": b"5;a=b\r\n",
    "blank before an extension": b"5 ; a=b\r\n",
    "quoted line end": b'5;a="\r\n',
    "carriage return in an extension": b"5;a\rb\r\n",
    "blank before": b" 5\r\n",
    "tab before": b"\t 5\r\n",
    "blank after": b"5 \t\r\n",
    "zeros": b"0005\r\n",
    "more zeros than digits that are read": b"0" * 22 + b"5\r\n",
    "blank and zeros": b" " + b"0" * 15 + b"5 ;\r\n",
}
BROKEN_SIZES = {
    "two carriage returns": b"5\r\r\n",
    "nothing": b"\r\n",
    "prefix": b"0x5\r\n",
    "sign": b"+5\r\n",
    "letter": b"5x\r\n",
    "two numbers": b"5 5\r\n",
    "vertical tab": b"\x0b5\r\n",
    "sixteen digits": b"F" * 16 + b"\r\n",
    "too great": b"FF\r\n",
    "too small": b"4\r\n",
}
ENDS = [
    b"0\r\n\r\n",
    b"0\n\n",
    b"0\r\n",
    b"0" * 30 + b"\r\n\r\n",
    b" 00 ;x\r\nT: 1\r\nU: 2\r\n\r\n",
    b"0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
]


@table("size", SIZES.values())
def test_chunk_that_the_fetcher_reads_is_read(size: bytes) -> None:
    for end in ENDS:
        found = fetched(CHUNKED_HEAD + size + HELLO + b"\r\n" + end, [])
        assert found is not None
        response, body, whole = found
        assert whole
        assert payload_of(response) == body == HELLO


@table("size", BROKEN_SIZES.values())
def test_chunk_that_the_fetcher_refuses_ends_the_payload(size: bytes) -> None:
    wire = CHUNKED_HEAD + b"2\r\nab\r\n" + size + HELLO + b"\r\n0\r\n\r\n"
    found = fetched(wire, [])
    assert found is not None
    response, body, whole = found
    assert not whole
    assert body.startswith(b"ab")
    assert payload_of(response) == body


def mostly(usual: bytes, *odd: bytes) -> st.SearchStrategy[bytes]:
    """Draw the usual value three times in four, so that an example has one or two oddities."""
    return st.sampled_from([usual] * (3 * len(odd)) + list(odd))


def joined(*parts: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.tuples(*parts).map(b"".join)


def several(part: st.SearchStrategy[bytes], most: int) -> st.SearchStrategy[bytes]:
    return st.lists(part, max_size=most).map(b"".join)


CODING = joined(
    mostly(
        *(b"", b" ", b"\t", b"\r", b"\0", b"\x0b", b"stray\r\n", b": no name\r\n"),
        *(b"X: a\r", b"X: a\r\n ", b"X :\n"),
    ),
    mostly(b"Transfer-Encoding", b"transfer-encoding", b"Content-Length", b"X", b"Upgrade"),
    mostly(
        *(b": ", b":", b" : ", b"  :", b"\t:", b":\r\n ", b":\n\t", b":\r ", b":\r", b"\r\n :"),
        *(b"\0: ", b":\x0b", b":\0"),
    ),
    mostly(
        *(b"chunked", b"Chunked,", b", chunked", b"chunked \t", b"chunked\x0c", b'"chunked"'),
        *(b"identity", b"gzip, chunked", b"chunked;q=1", b"x-chunked", b"chun\r\n ked"),
        *(b"chunked\r\n ,", b"chunked\r\n x", b"chunked\0", b"", b"5"),
    ),
    mostly(
        *(b"\r\n", b"\n", b"\r", b"\r\r\n", b"\r\n ", b"\r\n \r\n", b"\n\t", b"\r\n\r"),
        *(b"\0\r\n", b"\n\r\n"),
    ),
)
OTHER = mostly(
    *(b"A: b\r\n", b"Content-Length: 7\r\n", b"A :\r\n", b"A: \x85\xff\r\n"),
    *(b"Connection: close\n", b"A:\r\n b\r\n"),
)
HEADS = joined(
    mostly(
        *(STATUS_LINE, b"HTTP/1.0 200\n", b"HTTP/1.1 204 No\r\n", b"HTTP/2 404 \xe9\r\n"),
        *(b"HTTP/1.1 200 OK\r", b"\r\n" + STATUS_LINE, b"\n\n" + STATUS_LINE, b"http/1.1 200\n"),
        *(b" \r\n\r\n" + STATUS_LINE, b"\nHTTP 200: chunked\r\n"),
    ),
    several(OTHER, 2),
    CODING,
    several(OTHER | CODING, 2),
    mostly(b"\r\n", b"\n", b"\r\n\r\n"),
)
CONTENTS = st.just(HELLO) | st.binary(min_size=1, max_size=20)
CHUNK = st.builds(
    lambda size, content, end: size.replace(b"5", b"%x" % len(content), 1) + content + end,
    mostly(b"5\r\n", *SIZES.values(), *BROKEN_SIZES.values()),
    CONTENTS,
    mostly(b"\r\n", b"\n", b"\r", b"", b"x\r\n"),
)
CHUNKS = several(CHUNK, 5)
BODIES = joined(CHUNKS, st.sampled_from(ENDS)) | CONTENTS


def agrees(wire: bytes, cuts: list[int], max_size: int = 10**6) -> None:
    found = fetched(wire, cuts, max_size)
    if found is not None:
        response, body, _ = found
        assert payload_of(response) == body


@table(
    "head",
    [
        STATUS_LINE,
        STATUS_LINE + b"A: b\n",
        STATUS_LINE + b"A: b\0\r\n",
        STATUS_LINE + b"A: b\x01\r\n",
        b"HTTP/2.5 200 OK\r\n",
        STATUS_LINE + b"Content-Length: 5\r\nTransfer-Encoding : chunked\r\n",
        STATUS_LINE + b"Transfer-Encoding : chunked, identity\r\n",
    ],
)
@table(
    "coding",
    [
        b"\rTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"stray\r\nTransfer-Encoding : chunked\r\n",
    ],
)
def test_ambiguous_coding_is_read_as_by_the_fetcher(head: bytes, coding: bytes) -> None:
    """Readers disagree where such a head ends, and its rest decides which of them reads on."""
    agrees(head + coding + b"\r\n" + b"5\r\nhello\r\n0\r\n\r\n", [])


@given(HEADS, BODIES, st.lists(st.integers(0, 400), max_size=4), st.sampled_from([4, 20, 10**6]))
def test_payload_of_any_answer_is_the_fetchers_body(
    head: bytes, body: bytes, cuts: list[int], max_size: int
) -> None:
    """The response may be whole, broken or too large, and come in any pieces."""
    agrees(head + body, cuts, max_size)


@given(HEADS, BODIES, st.integers(0, 400))
def test_payload_of_a_cut_answer_is_the_fetchers_body(head: bytes, body: bytes, cut: int) -> None:
    wire = head + body
    agrees(wire[: cut % (len(wire) + 1)], [])


@given(CHUNKS, st.sampled_from(ENDS), st.lists(st.integers(0, 400), max_size=4))
def test_any_chunks_give_the_fetchers_body(chunks: bytes, end: bytes, cuts: list[int]) -> None:
    agrees(CHUNKED_HEAD + chunks + end, cuts)


@given(HEADS, BODIES)
def test_plain_message_has_its_payload_after_its_head(head: bytes, body: bytes) -> None:
    message = head + body
    rest = message.partition(b"\r\n\r\n")[2]
    found = fetched(message, [])
    if found is not None and is_plain(found[0], found[1]):
        assert payload_of(found[0]) == found[1] == rest[: len(found[1])]


FLOOD = 300_000


@pytest.mark.parametrize(
    "message",
    [
        STATUS_LINE + b"Transfer-Encoding: chunked" + b"\r\n a" * 4 * FLOOD + b"\r\n\r\n",
        STATUS_LINE + b"Transfer-Encoding: chunked\r\n" + b"\r" * FLOOD + b"\r\n\r\n",
        STATUS_LINE + b"chunked" * FLOOD + b"\r\n\r\n",
        CHUNKED_HEAD + b" " * FLOOD,
        CHUNKED_HEAD + b"0" * FLOOD + b" " * FLOOD + b"x",
        CHUNKED_HEAD + b"1;" + b"\r" * FLOOD,
        CHUNKED_HEAD + b"1\r\na\r\n" * (FLOOD // 6),
    ],
    ids=["folds", "carriage returns", "words", "blanks", "zeros", "extension", "tiny chunks"],
)
def test_hostile_message_takes_linear_time(message: bytes) -> None:
    assert seconds(lambda: payload_of(message), enough=3) < 3
