"""The file of KROWL_POLICIES: what stops the start, and what stays in force during the crawl."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from krowlspider.errors import SettingsError
from krowlspider.job import site_policies
from krowlspider.job.site_policies import SitePolicies
from krowlspider.policies.rewrites import rewritten
from krowlspider.policies.sheets import BadPolicies
from krowlspider.urls.canonical import host_of
from tests.frontier.memory import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.policies.keys import Policy
    from krowlspider.policies.sheets import HostPolicies

SHEET = b'[[sheet]]\nname = "a"\nmatch = ["a.test"]\ndepth = 1\n'


def write(path: Path, text: bytes) -> None:
    path.with_name("new").write_bytes(text)
    path.with_name("new").replace(path)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"[[sheet]]\n", "line 1: a sheet needs a name"),
        (SHEET + b"# \xff\n", "line 5: not UTF-8"),
        (SHEET.replace(b"depth", b"delay").replace(b"= 1", b"= 0.1"), "line 4: delay = 0.1: below"),
        (b"x" * 101, "cannot be read: more than 100 bytes"),
        (None, "cannot be read: not a file"),
    ],
)
def test_a_file_that_cannot_be_used_stops_the_start(
    tmp_path: Path, text: bytes | None, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_policies, "SIZE_MAX", 100)
    path = tmp_path / "policies.toml"
    if text is None:
        os.mkfifo(path)
    else:
        path.write_bytes(text)
    with pytest.raises(SettingsError, match="KROWL_POLICIES") as raised:
        SitePolicies(path, delay_min=0.25)
    assert error in str(raised.value)


def test_a_version_is_read_once_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "policies.toml"
    write(path, SHEET)
    sites = SitePolicies(path)
    assert sites.look() is None
    write(path, SHEET + b"max_pages = 2\n")
    assert sites.look() is None
    found = sites.look()
    assert found is not None
    sites.use(found)
    policies = sites.of("a.test")
    assert policies is not None
    assert (policies.fixed.depth, policies.fixed.max_pages) == (1, 2)
    assert sites.look() is None
    sites.reload()
    assert sites.look() is not None


def test_a_faulty_version_leaves_the_sheets_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "policies.toml"
    write(path, SHEET)
    sites = SitePolicies(path)
    before = sites.version
    assert sites.state() == f"1 sheet, {before.digest[:12]} in force"
    write(path, SHEET + b"deptj = 2\n")
    assert sites.look() is None
    with pytest.raises(BadPolicies) as raised:
        sites.look()
    for _ in range(2):
        sites.refuse(raised.value)
    assert (sites.version, sites.failed_count) == (before, 1)
    assert caplog.text.count("did you mean depth?") == 1
    assert sites.state().startswith(f"not in force: KROWL_POLICIES {path}: {path} line 5: deptj is")
    # A person orders a reload: it is still not in force, and the log says so once more.
    sites.reload()
    assert sites.state().startswith("not in force: ")
    with pytest.raises(BadPolicies):
        sites.look()
    sites.refuse(raised.value)
    assert caplog.text.count("did you mean depth?") == 2
    write(path, SHEET)
    assert sites.look() is None
    found = sites.look()
    assert found is not None
    sites.use(found)
    assert sites.fault == ""


def test_a_file_that_comes_back_is_in_force_again(tmp_path: Path) -> None:
    path, away = tmp_path / "policies.toml", tmp_path / "away.toml"
    write(path, SHEET)
    sites = SitePolicies(path)
    before = sites.version
    path.rename(away)
    with pytest.raises(FileNotFoundError) as missing:
        sites.look()
    sites.refuse(missing.value)
    assert sites.version is before
    assert sites.fault.endswith(": No such file or directory")
    away.rename(path)
    found = sites.look()
    assert found is not None
    sites.use(found)
    assert sites.fault == ""


@pytest.mark.parametrize(
    ("known", "address", "page", "robots"),
    [
        # Not known yet: a page waits for its sheets, and robots.txt goes before.
        ("", "192.0.2.7", False, True),
        ("", "2001:db8::7", False, True),
        ("", "::ffff:192.0.2.7", False, True),
        ("", "198.51.100.7", True, True),
        ("192.0.2.7", "192.0.2.8", True, True),
        ("2001:db8::", "2001:db8::7", True, True),
        # Whoever sets the address of the name leads it into a block, out of it, or into another.
        ("198.51.100.7", "192.0.2.7", False, False),
        ("192.0.2.7", "198.51.100.7", False, False),
        ("192.0.2.7", "2001:db8::7", False, False),
    ],
)
def test_sheets_of_a_block_stay_with_its_addresses(
    tmp_path: Path, known: str, address: str, page: bool, robots: bool
) -> None:
    path = tmp_path / "policies.toml"
    sheet = '[[sheet]]\nname = "{0}"\nmatch = ["{0}"]\ndepth = 1\n'
    write(path, "".join(map(sheet.format, ("192.0.2.0/24", "2001:db8::/32"))).encode())
    sites = SitePolicies(path, address_of=lambda _: known)
    assert sites.permit("a.test", address, is_page=True) is page
    assert sites.permit("a.test", address, is_page=False) is robots


LIMITED = """
[[sheet]]
name = "few"
match = ["few.test"]
max_pages = 2

[[sheet]]
name = "none"
match = ["test,few,)/none"]
max_pages = 0

[[sheet]]
name = "bare"
match = ["bare.test"]
www = "drop"

[[sheet]]
name = "kept"
match = ["kept.test"]
www = "keep"
"""


def test_limits_are_asked_once_for_a_host_and_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many links a page has to the host, and in whatever order."""
    path = tmp_path / "policies.toml"
    write(path, LIMITED.encode())
    sites = SitePolicies(path)
    quotas = sites.quotas(MemoryStore(), lambda: 0.0)
    refusal, asked = quotas.refusal, list[str]()

    def count(found: HostPolicies, host: str, url: str, *, is_page: bool = True) -> str:
        asked.append(url)
        return refusal(found, host, url, is_page=is_page)

    monkeypatch.setattr(quotas, "refusal", count)
    hosts = ["few.test", "bare.test", "few.test", "www.few.test", "free.test"] * 20
    urls = [f"http://{host}/{'none/' * (at % 5 == 2)}{at}" for at, host in enumerate(hosts)]
    reasons = sites.refusals(
        urls, hosts, 1, [None] * 100, is_given=False, is_requisite=False, is_beyond=False
    )
    assert asked == [urls[0], urls[2], urls[3]]
    assert reasons == [None, None, "max_pages", None, None] * 20


def test_only_urls_of_hosts_whose_sheets_rewrite_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "policies.toml"
    write(path, LIMITED.encode())
    sites, looked = SitePolicies(path), list[str]()

    def rewrite(url: str, policy: Policy) -> str:
        looked.append(url)
        return rewritten(url, policy)

    monkeypatch.setattr(site_policies, "rewritten", rewrite)
    hosts = ("www.bare.test", "www.kept.test", "www.few.test", "free.test")
    urls = [f"http://{host}/" for host in hosts]
    assert sites.rewritten(urls, host_of) == ["http://bare.test/", *urls[1:]]
    assert looked == urls[:1]
