"""The lines of a seed file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.urls.canonical import URL_MAX, normalise
from krowlspider.urls.seeds import BadSeed, Seed, SeedWords, parse_seed, parse_words, seed_text
from tests.support.tables import table


@pytest.mark.parametrize(
    ("line", "url"),
    [
        ("https://example.com/a?b#c", "https://example.com/a?b"),
        ("HTTP://EXAMPLE.COM:80/A", "http://example.com/A"),
        ("http://localhost:8080/", "http://localhost:8080/"),
        ("http://intranet/", "http://intranet/"),
        ("http://[::1]:8080/", "http://[::1]:8080/"),
        ("7,https://example.com/1,2", "https://example.com/1,2"),
    ],
)
def test_a_url_is_taken_as_it_is(line: str, url: str) -> None:
    assert parse_seed(line.encode()) == Seed(url, bare=False)


@table(
    ("line", "url"),
    [
        ("example.com", "https://example.com/"),
        ("example.com/path?q=http://x", "https://example.com/path?q=http://x"),
        ("example.com:8080", "https://example.com:8080/"),
        ("münchen.de", "https://xn--mnchen-3ya.de/"),
        ("localhost", "https://localhost/"),
        ("localhost:8080/a", "https://localhost:8080/a"),
        ("127.0.0.1:8080", "https://127.0.0.1:8080/"),
        ("example.com.", "https://example.com./"),
        ("[::1]:8080", "https://[::1]:8080/"),
        ("1,google.com", "https://google.com/"),
        ("1000000,a.co.uk", "https://a.co.uk/"),
    ],
)
def test_a_bare_domain_is_tried_by_https(line: str, url: str) -> None:
    assert parse_seed(line.encode()) == Seed(url, bare=True)


@pytest.mark.parametrize(
    "line", [b"", b"\n", b" \t\r\n", b"#", b"# example.com", b"  # x\r\n", b"\xef\xbb\xbf# x"]
)
def test_blank_lines_and_comments_are_no_seeds(line: bytes) -> None:
    assert parse_seed(line) is None


@pytest.mark.parametrize(
    "line",
    [
        *(b"example.com\r\n", b"\xef\xbb\xbfexample.com\n", b"\t example.com \n"),
        *(b"example.com # the first\n", b"example.com\t#\xc3\xa4\n", b"example.com/#fragment"),
    ],
)
def test_line_ends_byte_order_mark_and_comments_are_left_out(line: bytes) -> None:
    assert parse_seed(line) == Seed("https://example.com/", bare=True)


@table(
    ("line", "reason"),
    [
        (b"\xff.example.com", "UTF-8"),
        (b"exam\x00ple.com", "control"),
        (b"exam\x1bple.com", "control"),
        (b"exam\rple.com", "control"),
        (b"example.com example.org", "whitespace"),
        ("example.com\u00a0x".encode(), "whitespace"),
        (b"https://exam ple.com/", "whitespace"),
        (b"example", "neither a URL nor a domain: 'example'"),
        (b"7", "neither a URL nor a domain"),
        (b"7,", "several fields: '7,'"),
        (b"/etc/hosts", "neither a URL nor a domain"),
        (b"mailto:a@example.com", "neither a URL nor a domain"),
        (b"ftp://example.com/", "scheme ftp"),
        (b"https://", "not a URL"),
        (b"999.1.1.1", "not a URL"),
        (b"user:password@example.com", "neither a URL nor a domain"),
        (b"https://user:password@example.com/", "user name"),
        (b"a@example.com", "user name"),
        (b'"example.com"', "not a host name"),
        (b"example.com,7", "several fields: 'example.com,7'"),
        (b"1,1,example.com,com", "several fields"),
        (b"a.test.\t3600\tin\tns\tns.test.", "a record of a zone file"),
        (b"example..com", "not a host name: 'example..com'"),
        (b"http://.example.com/", "not a host name"),
    ],
)
def test_a_bad_line_says_why(line: bytes, reason: str) -> None:
    with pytest.raises(BadSeed, match=reason):
        parse_seed(line)


def test_the_longest_seed_is_taken_and_a_longer_one_is_bad() -> None:
    longest = b"https://example.com/".ljust(URL_MAX, b"x")
    assert parse_seed(longest) == Seed(longest.decode(), bare=False)
    with pytest.raises(BadSeed, match="longer than 2048"):
        parse_seed(longest + b"x")


@given(st.binary() | st.text().map(str.encode) | st.text("1,a.:/#[] \t").map(str.encode))
def test_any_line_is_a_normalised_seed_or_none_or_bad(line: bytes) -> None:
    try:
        seed = parse_seed(line)
    except BadSeed:
        return
    if seed is not None:
        assert normalise(seed.url) == seed.url
        assert parse_seed(seed_text(seed).encode()) == seed


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("{}", SeedWords()),
        (
            '{"tag": "news", "depth": 2, "max_pages": 500, "priority": 5}',
            SeedWords("news", 2, 500, 5),
        ),
        ('  {"depth": 0, "priority": -100}', SeedWords(depth=0, priority=-100)),
        ('{"tag": "a # b"}  # a comment', SeedWords("a # b")),
        ('{"tag": "Zürich 7 %"}\r\n', SeedWords("Zürich 7 %")),
        (f'{{"tag": "{"x" * 100}", "depth": 32767}}', SeedWords("x" * 100, 32767)),
    ],
)
def test_words_follow_a_tab(words: str, expected: SeedWords) -> None:
    for url, bare in (("https://a.test/", False), ("a.test", True), ("7,a.test", True)):
        seed = parse_seed(f"{url}\t{words}".encode())
        assert seed == Seed("https://a.test/", bare=bare, words=expected)
        assert seed is not None
        assert parse_seed(seed_text(seed).encode()) == seed


_RANGES = {"depth": "0 to 32,767", "max_pages": "1 to 1,000,000,000,000", "priority": "-100 to 100"}
_TAG = "give a text of 1 to 100 printable characters"


@table(
    ("words", "reason"),
    [
        ('{"dept": 2}', "unknown word 'dept': did you mean 'depth'? known are tag, depth"),
        ('{"x": 2}', "unknown word 'x': known are tag, depth, max_pages, priority"),
        ('{"depth": 2', "the words behind the tab are no JSON: Expecting ',' delimiter"),
        ('{"depth": 2} 3', "'3' behind the words"),
        ('{"depth": 2, "depth": 3}', "'depth' stands twice in the words"),
        ('{"a":' * 9000, "no JSON: maximum recursion depth"),
        ('{"depth": ' + "9" * 9000 + "}", "no JSON: Exceeds the limit"),
        ('{"tag": 7}', f"tag is 7: {_TAG}"),
        ('{"tag": ""}', f'tag is "": {_TAG}'),
        ('{"tag": " x"}', f'tag is " x": {_TAG}'),
        ('{"tag": "a\\tb"}', f'tag is "a\\tb": {_TAG}'),
        # A reason goes to logs and to the disk: half of a pair of code units has no UTF-8.
        ('{"tag": "\\ud800"}', f'tag is "\\ud800": {_TAG}'),
        ('{"tag": "\\u202ex"}', f'tag is "\\u202ex": {_TAG}'),
        (f'{{"tag": "{"x" * 101}"}}', _TAG),
        *(
            (f'{{"{name}": {value}}}', f"{name} is {value}: give a whole number from {span}")
            for name, span in _RANGES.items()
            for value in ("true", '"2"', "null", "2.5", "[]", "-101", str(10**12 + 1))
        ),
        ('{"max_pages": 0}', "max_pages is 0: give a whole number from 1"),
    ],
)
def test_bad_words_say_why(words: str, reason: str) -> None:
    with pytest.raises(BadSeed) as caught:
        parse_seed(f"https://a.test/\t{words}".encode())
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'https://a.test/ {"tag": "x"}', "no tab before the words"),
        (b'https://a.test/\t["x"]', "whitespace inside"),
        (b'a.test x\t{"tag": "x"}', "whitespace inside"),
    ],
)
def test_words_elsewhere_are_bad(line: bytes, reason: str) -> None:
    with pytest.raises(BadSeed, match=reason):
        parse_seed(line)


@pytest.mark.parametrize("line", [b'# a.test\t{"tag": 1}', b'\t{"tag": 1}', b"# x\t{"])
def test_comments_have_no_words(line: bytes) -> None:
    assert parse_seed(line) is None


@given(st.text() | st.dictionaries(st.sampled_from(["tag", "depth"]), st.integers()).map(str))
def test_any_words_are_read_or_bad(text: str) -> None:
    try:
        words = parse_words(text)
    except BadSeed:
        return
    assert parse_words(words.text()) == words
