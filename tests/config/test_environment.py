"""Settings come from the environment too."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support import warm

if TYPE_CHECKING:
    import subprocess


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "scrapy", *words]
    return warm.run(command, environment={**os.environ, **environment})


def test_a_command_line_goes_before_the_environment() -> None:
    given = {"KROWL_DELAY_MAX": "77", "JOBDIR": "/j", "KROWL_DELAY_MIN": "", "USER_AGENT": "x"}
    assert run("settings", "--get", "JOBDIR", **given).stdout == b"/j\n"
    assert run("settings", "--getfloat", "KROWL_DELAY_MAX", **given).stdout == b"77.0\n"
    assert run("settings", "--getfloat", "KROWL_DELAY_MIN", **given).stdout == b"0.25\n"
    words = ("settings", "--get", "KROWL_DELAY_MAX", "-s", "KROWL_DELAY_MAX=78")
    assert run(*words, **given).stdout == b"78\n"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("KROWL_DELAY_MN", "1", "KROWL_DELAY_MN is not a setting: did you mean KROWL_DELAY_MIN?"),
        ("KROWL_DELAY_MIN", "soon", "KROWL_DELAY_MIN='soon' "),
        ("KROWL_SEEN_VERIFY", "perhaps", "KROWL_SEEN_VERIFY='perhaps' "),
        ("KROWL_CONTACT", "you@example.org", "KROWL_CONTACT='you@example.org' "),
    ],
)
def test_a_wrong_variable_stops_the_start(name: str, value: str, said: str) -> None:
    given = {"KROWL_CONTACT": "crawl-tests@krowlspider.internal", name: value}
    done = run("crawl", "broad", "-a", "seeds=http://127.0.0.1:9/", **given)
    assert done.returncode == 2
    assert f"krowlspider: {said}" in done.stderr.decode()
