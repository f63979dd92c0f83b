"""What sheets say about single sites, and the files that they name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from krowlspider.errors import SettingsError
from krowlspider.frontier.entry import Entry
from krowlspider.job.head_requests import HeadFirst, shows_html
from krowlspider.job.site_policies import SitePolicies
from krowlspider.job.sites import Sites
from krowlspider.policies.sheets import BadPolicies
from krowlspider.politeness.delay import DelayPolicy, HostRate
from krowlspider.recrawl.value import INTERVAL_MAX, INTERVAL_MIN, Terms
from tests.support.crawling import write_seeds
from tests.support.crawls import refused
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.tables import table

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"# Netscape HTTP Cookie File\n"
SHEET = '[[sheet]]\nname = "a"\nmatch = ["a.test"]\n'
DAY = 86_400.0


def sites(folder: Path, text: str, address: str = "") -> Sites:
    path = folder / "policies.toml"
    path.write_text(text)
    return Sites(SitePolicies(path, address_of=lambda _: address), "bot/1")


@pytest.mark.parametrize(
    ("key", "content", "message"),
    [
        ("auth", None, "{file} cannot be read: No such file or directory"),
        ("auth", b"", "{file} has 0 lines: write user:password on one line"),
        ("auth", b"a:b\nc:d\n", "{file} has 2 lines: write user:password on one line"),
        ("auth", b"nobody\n", "{file} line 1 is not user:password"),
        ("auth", b"a:\x07\n", "{file} line 1 is not user:password"),
        ("auth", b"a:\xff\n", "{file} is no UTF-8 text"),
        ("auth", bytes(2_000_000), "{file} has more than 1048576 bytes"),
        ("cookies", None, "{file} cannot be read: No such file or directory"),
        ("cookies", b'{"a": 1}', "{file} line 1 is no cookie: write domain"),
        ("cookies", MAGIC + b"a.test\tFALSE\tpath\tFALSE\t0\ta\tb\n", "{file} line 2 is no coo"),
        ("cookies", MAGIC + b"\n# words\na.test FALSE / FALSE 0 a b\n", "{file} line 4 is no"),
        ("cookies", MAGIC + b"a.test\tyes\t/\tFALSE\t0\ta\tb\n", "{file} line 2 is no cookie"),
        ("cookies", MAGIC + b"a.test\tFALSE\t/\tFALSE\tnow\ta\tb\n", "{file} line 2 is no cookie"),
        (
            "cookies",
            MAGIC + "a.test\tFALSE\t/\tFALSE\t0\ta\tü\n".encode(),
            "{file} line 2 has char",
        ),
    ],
)
def test_a_bad_file_is_named_with_its_line(
    tmp_path: Path, key: str, content: bytes | None, message: str
) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    policies = tmp_path / "policies.toml"
    with pytest.raises(SettingsError) as found:
        sites(tmp_path, f'{SHEET}{key} = "file"')
    expected = f"KROWL_POLICIES: {policies} line 4: {key}: {message.format(file=file)}"
    assert str(found.value).startswith(expected)


COOKIES = """# Netscape HTTP Cookie File
.a.test\tTRUE\t/\tFALSE\t0\tbelow\t1
a.test\tTRUE\t/\tFALSE\t4102444800\tbelow-too\t2\r
A.test\tFALSE\t/\tFALSE\t0\thost\t3
#HttpOnly_a.test\tFALSE\t/\tTRUE\t0\tsecure\t4
a.test\tFALSE\t/deep\tFALSE\t0\tdeep\t5
a.test\tFALSE\t/deep/er/\tFALSE\t0\tdeeper\t6
a.test\tFALSE\t/\tFALSE\t1000000000\texpired\t7
a.test\tFALSE\t/\tFALSE\t0\t\tnameless
test\tTRUE\t/\tFALSE\t0\tall\t8
b.test\tTRUE\t/\tFALSE\t0\tother\t9
"""


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("http://a.test/", "below=1; below-too=2; host=3; nameless; all=8"),
        ("http://a.test:81/?/deep", "below=1; below-too=2; host=3; nameless; all=8"),
        ("https://a.test/", "below=1; below-too=2; host=3; secure=4; nameless; all=8"),
        ("http://a.test/deep", "deep=5; below=1; below-too=2; host=3; nameless; all=8"),
        ("http://a.test/deeper", "below=1; below-too=2; host=3; nameless; all=8"),
        (
            "http://a.test/deep/er/x?y",
            "deeper=6; deep=5; below=1; below-too=2; host=3; nameless; all=8",
        ),
        ("http://www.a.test/", "below=1; below-too=2; all=8"),
        ("http://aa.test/", "all=8"),
        ("http://xa.test.example/", ""),
    ],
)
def test_which_cookies_are_sent(tmp_path: Path, url: str, sent: str) -> None:
    """RFC 6265, sections 5.1.3, 5.1.4 and 5.4."""
    (tmp_path / "cookies.txt").write_bytes(COOKIES.encode())
    match = '["a.test", "aa.test", "xa.test.example"]'
    text = f'[[sheet]]\nname = "a"\nmatch = {match}\ncookies = "cookies.txt"'
    found = sites(tmp_path, text)
    policy = found.of(url)
    assert policy is not None
    headers, secrets = found.headers(policy, url, [(b"Accept", b"*/*")])
    cookie = [(b"Cookie", sent.encode())] if sent else []
    assert headers == [*cookie, (b"Accept", b"*/*")]
    assert secrets == tuple(b"%b: %b\r\n" % each for each in cookie)


def test_a_start_is_refused_for_a_bad_file(tmp_path: Path) -> None:
    policies = tmp_path / "policies.toml"
    policies.write_text(f'{SHEET}auth = "secret"\n')
    seeds = write_seeds(tmp_path / "seeds.txt", ["http://a.test/"])
    crawl = SimulatedCrawl(
        tmp_path / "job", arguments={"seeds": seeds}, settings={"KROWL_POLICIES": policies}
    )
    assert refused(crawl) == (
        f"krowlspider: KROWL_POLICIES: {policies} line 4: auth: {tmp_path / 'secret'}"
        " cannot be read: No such file or directory"
    )


def test_bad_files_leave_the_sheets_before_in_force(tmp_path: Path) -> None:
    path = tmp_path / "policies.toml"
    path.write_text(f"{SHEET}delay = 9")
    policies = SitePolicies(path)
    found = Sites(policies, "bot/1")
    with pytest.raises(BadPolicies):
        policies.parse(f'{SHEET}auth = "none"'.encode())
    assert found.delay("a.test") == 9
    policies.use(policies.parse(f"{SHEET}delay = 8".encode()))
    assert found.delay("a.test") == 8


def test_a_delay_only_makes_waits_longer(tmp_path: Path) -> None:
    found = sites(tmp_path, f"{SHEET}delay = 9")
    usual = DelayPolicy(5.0, 0.25, 30.0, 300.0)
    policy = found.delays(usual)
    assert policy.longest == 3600.0
    assert policy.of("b.test").delay(HostRate()) == 0.25
    rates = {
        9.0: HostRate(),
        20.0: HostRate(ema=4.0),
        60.0: HostRate(floor=60.0),
        36.0: HostRate(throttling=2),
    }
    assert {wait: policy.of("a.test").delay(rate) for wait, rate in rates.items()} == {
        wait: wait for wait in rates
    }
    slow = found.delays(DelayPolicy(5.0, 10.0, 30.0, 300.0))
    assert slow.of("a.test").delay(HostRate()) == 10.0
    # A delay that a person gives a host.
    usual.of_hosts["a.test"] = replace(found.delays(usual), minimum=12.0, of_hosts={})
    assert found.delays(usual).of("a.test").delay(HostRate()) == 12.0
    assert found.delays(usual).longest == 3600.0
    assert sites(tmp_path, f"{SHEET}delay = 80000").delays(usual).longest == 80_000


@pytest.mark.parametrize(
    ("match", "is_good"),
    [
        ("a.test", True),
        ("192.0.2.1", True),
        ("host:www.a.test", False),
        ("www.a.test", False),
        ("test,a,)/path", False),
        ("192.0.2.0/24", False),
    ],
)
def test_concurrency_is_of_a_whole_domain(tmp_path: Path, match: str, *, is_good: bool) -> None:
    text = f'[[sheet]]\nname = "a"\nmatch = ["{match}"]\nconcurrency = 3'
    if is_good:
        found = sites(tmp_path, text)
        assert found.concurrency(match) == 3
        assert found.concurrency("b.test") is None
    else:
        with pytest.raises(SettingsError, match="line 4: concurrency holds for registrable"):
            sites(tmp_path, text)


def test_the_longest_delay_of_the_paths_of_a_host_holds(tmp_path: Path) -> None:
    found = sites(
        tmp_path,
        f"{SHEET}delay = 2\n[[sheet]]\nname = 'b'\nmatch = ['test,a,)/slow']\ndelay = 7\n"
        "[[sheet]]\nname = 'c'\nmatch = ['test,a,)/quick']\ndelay = 1",
    )
    assert found.delay("a.test") == 7
    assert found.delays(DelayPolicy(5.0, 0.25, 30.0, 300.0)).longest_least == 7


@pytest.mark.parametrize(
    ("keys", "terms"),
    [
        ("", Terms()),
        ("weight = 3", Terms(3.0)),
        ("recrawl_min = 7200", Terms(least=7200.0)),
        ("recrawl_max = 120", Terms(least=120.0, most=120.0)),
        (f"recrawl_max = {DAY}", Terms(least=INTERVAL_MIN, most=DAY)),
        (f"recrawl_min = {800 * DAY}", Terms(least=800 * DAY, most=800 * DAY)),
        ("recrawl_min = 60\nrecrawl_max = 90", Terms(least=60.0, most=90.0)),
    ],
)
def test_terms_of_a_site(tmp_path: Path, keys: str, terms: Terms) -> None:
    assert INTERVAL_MAX < 800 * DAY
    found = sites(tmp_path, f"{SHEET}{keys}")
    assert found.terms("http://a.test/page") == terms
    assert found.terms("http://b.test/page") == Terms()


def test_a_block_of_addresses_covers_hosts_there(tmp_path: Path) -> None:
    text = '[[sheet]]\nname = "block"\nmatch = ["192.0.2.0/24"]\ndelay = 7'
    assert sites(tmp_path, text, "192.0.2.9").delay("a.test") == 7
    assert sites(tmp_path, text, "198.51.100.9").delay("a.test") == 0
    assert sites(tmp_path, text).delay("a.test") == 0


@table(
    ("media_type", "is_refused"),
    [
        (None, False),
        (b"text/html; charset=utf-8", False),
        (b"", False),
        (b"application/pdf", False),
        (b"application/xhtml+xml", False),
        (b" Image/PNG ;x", True),
        (b"image/x-unheard-of", True),
        (b"video/mp4", True),
        (b"font/woff2", True),
        (b"application/zip", True),
        (b"\xff/\xff", False),
    ],
)
def test_head_refuses_types_of_skipped_extensions(
    media_type: bytes | None, *, is_refused: bool
) -> None:
    skipped = ["png", ".JPG", "mp4", "woff", "zip"]
    head_first = HeadFirst(is_usual=True, skipped=skipped, sites=None)
    assert head_first.refuses("a.test", 200, media_type) is is_refused
    assert not head_first.refuses("a.test", 404, media_type)
    assert not HeadFirst(is_usual=True, skipped=[], sites=None).refuses("a.test", 200, media_type)


def test_a_host_without_head_is_not_asked_again() -> None:
    head_first = HeadFirst(is_usual=True, skipped=[], sites=None)
    entry = Entry("http://a.test/x", 1)
    for status in (200, 404, 403, 503):
        head_first.refuses("a.test", status, None)
        assert head_first.asks(entry, "a.test")
    head_first.refuses("a.test", 405, None)
    head_first.refuses("b.test", 501, None)
    asked = {host: head_first.asks(entry, host) for host in ("a.test", "b.test", "c.test")}
    assert asked == {"a.test": False, "b.test": False, "c.test": True}


@pytest.mark.parametrize(
    ("url", "is_html"),
    [
        ("http://a.test/", True),
        ("http://a.test/b/?c=d/e", True),
        ("http://a.test/b.HTML?c", True),
        ("http://a.test/html", False),
        ("http://a.test/b.pdf", False),
        ("http://a.test/b.html/c", False),
        ("http://a.test/c?d=e.html", False),
    ],
)
def test_which_urls_show_html(url: str, *, is_html: bool) -> None:
    assert shows_html(url) is is_html
