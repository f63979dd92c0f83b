from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.fetch.errors import CertificateRefused, LocalExhausted
from krowlspider.frontier.store.store import LevelStore
from krowlspider.gemini.certificates import NEVER, CertificatePins, PinMatch, pin_of
from tests.gemini.keys import Key, der

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY = 86_400
NOW = 2_000_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LevelStore]:
    opened = LevelStore(tmp_path / "store", create=True)
    yield opened
    opened.close()


class Known:
    """Certificates whose counts are kept, and whose time is set."""

    def __init__(self, store: LevelStore, **options: Any) -> None:
        self.counts: Counter[str] = Counter()
        self.now = NOW
        self.certificates = CertificatePins(
            store,
            **{"accepts_changes": False, **options},
            wall=lambda: self.now,
            count=lambda word: self.counts.update([word]),
        )
        self.check = self.certificates.check


def valid(key: Key, ends: float) -> bytes:
    """Return a certificate that is valid until days after NOW."""
    certificate = key.certificate(begins=-10_000, ends=1)
    shift = (NOW - certificate.not_valid_after_utc.timestamp()) / DAY
    return der(key.certificate(begins=-10_000, ends=1 + shift + ends))


def test_the_first_certificate_is_trusted_and_then_expected(store: LevelStore) -> None:
    known, key = Known(store), Key()
    shown = valid(key, 10)
    assert known.check("a.test:1965", shown) is PinMatch.FIRST
    assert known.check("a.test:1965", shown) is PinMatch.SAME
    with pytest.raises(CertificateRefused, match=r"a\.test:1965 shows another"):
        known.check("a.test:1965", valid(Key(), 10))
    # Another port is another server.
    assert known.check("a.test:1966", valid(Key(), 10)) is PinMatch.FIRST
    # The refused one has changed nothing.
    assert known.check("a.test:1965", shown) is PinMatch.SAME
    assert known.counts == {"first": 2, "refused": 1}


def test_a_renewed_certificate_of_the_same_key_is_the_same_server(store: LevelStore) -> None:
    known, key = Known(store), Key()
    known.check("a.test:1965", valid(key, 10))
    assert known.check("a.test:1965", valid(key, 500)) is PinMatch.RENEWED
    known.now += 20 * DAY
    with pytest.raises(CertificateRefused):
        # The end of the validity is that of the renewed one.
        known.check("a.test:1965", valid(Key(), 500))


def test_another_key_is_trusted_once_the_certificate_has_expired(store: LevelStore) -> None:
    known = Known(store)
    known.check("a.test:1965", valid(Key(), 1))
    following = valid(Key(), 500)
    known.now += DAY - 2
    with pytest.raises(CertificateRefused):
        known.check("a.test:1965", following)
    known.now += 4
    assert known.check("a.test:1965", following) is PinMatch.AFTER_EXPIRY
    assert known.check("a.test:1965", following) is PinMatch.SAME


def test_an_expired_certificate_is_trusted_and_not_defended(store: LevelStore) -> None:
    known = Known(store)
    expired = valid(Key(), -5)
    assert known.check("a.test:1965", expired) is PinMatch.FIRST
    assert known.check("a.test:1965", expired) is PinMatch.SAME
    assert known.check("a.test:1965", valid(Key(), 5)) is PinMatch.AFTER_EXPIRY


def test_the_policy_may_accept_another_key(store: LevelStore) -> None:
    known = Known(store, accepts_changes=True)
    known.check("a.test:1965", valid(Key(), 10))
    other = valid(Key(), 10)
    assert known.check("a.test:1965", other) is PinMatch.ACCEPTED
    assert Known(store).check("a.test:1965", other) is PinMatch.SAME


@pytest.mark.parametrize("certificate", [b"", b"\x30\x03abc", b"\x00" * 30_000])
def test_what_is_no_certificate_is_pinned_as_it_is(store: LevelStore, certificate: bytes) -> None:
    known = Known(store)
    assert pin_of(certificate).ends == NEVER
    assert known.check("a.test:1965", certificate) is PinMatch.FIRST
    assert known.check("a.test:1965", certificate) is PinMatch.SAME
    with pytest.raises(CertificateRefused):
        known.check("a.test:1965", certificate + b"x")


def test_a_server_without_certificate_is_refused(store: LevelStore) -> None:
    with pytest.raises(CertificateRefused, match="no certificate"):
        Known(store).check("a.test:1965", None)


def test_at_most_so_many_servers_are_kept(store: LevelStore) -> None:
    known = Known(store, most=2)
    for number in range(4):
        assert known.check(f"{number}.test:1965", b"%d" % number) is PinMatch.FIRST
    assert known.counts == {"first": 2, "unknown": 2}
    assert known.check("1.test:1965", b"1") is PinMatch.SAME
    # Of the others nothing is known.
    assert known.check("3.test:1965", b"other") is PinMatch.FIRST
    again = Known(store, most=3)
    assert again.certificates.kept == 2
    assert again.check("3.test:1965", b"3") is PinMatch.FIRST
    assert again.check("3.test:1965", b"3") is PinMatch.SAME


def test_a_certificate_lacks_its_record_until_one_is_noted(store: LevelStore) -> None:
    known = Known(store, accepts_changes=True).certificates
    first, second = valid(Key(), 10), valid(Key(), 10)
    assert not known.lacks_record("a.test:1965", first)
    known.check("a.test:1965", first)
    assert known.lacks_record("a.test:1965", first)
    assert not known.lacks_record("a.test:1965", second)
    known.recorded("a.test:1965", first)
    assert not known.lacks_record("a.test:1965", first)
    known.check("a.test:1965", second)
    assert known.lacks_record("a.test:1965", second)
    # The record of the one before comes late.
    known.recorded("a.test:1965", first)
    assert known.lacks_record("a.test:1965", second)


def test_a_failed_disk_is_no_fault_of_the_server(store: LevelStore) -> None:
    known = Known(store)
    known.check("a.test:1965", b"a")
    # As after a write that failed.
    store.failure = OSError("no disk")
    with pytest.raises(LocalExhausted, match="cannot be kept"):
        known.check("b.test:1965", b"b")
    assert known.certificates.kept == 1


PINNING = """
import sys, time
from pathlib import Path
from krowlspider.frontier.store.store import LevelStore
from krowlspider.gemini.certificates import CertificatePins
store = LevelStore(Path(sys.argv[1]), create=True)
known = CertificatePins(store, accepts_changes=False, wall=time.time, count=lambda word: None)
for number in range(100_000):
    known.check(f"{number}.test:1965", b"%d" % number)
    print(number, flush=True)
"""


def test_what_was_pinned_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "store"
    process = subprocess.Popen(
        [sys.executable, "-c", PINNING, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as said:
        for line in said:
            if int(line) == 50:
                os.kill(process.pid, signal.SIGKILL)
                break
        last = max([50, *(int(line) for line in said if line.endswith("\n"))])
    process.wait()
    store = LevelStore(path)
    known = Known(store)
    assert last < 99_999
    assert known.certificates.kept >= last + 1
    for number in range(last + 1):
        assert known.check(f"{number}.test:1965", b"%d" % number) is PinMatch.SAME
    with pytest.raises(CertificateRefused):
        known.check("7.test:1965", b"other")
    store.close()
