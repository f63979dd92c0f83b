"""An attack by number beside 60 good hosts, in real time, so that the CPU of each host counts.

Good hosts keep their rate, and no address gets too many requests. More attacks are in
test_crowds.py, in simulated time.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.crawling import Crawl, write_seeds
from tests.support.farm import STRIKES, Attack, Farm

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

# Delays and shares as in an ordinary crawl.
DEFAULTS = {
    "KROWL_DELAY_MIN": 0.25,
    "KROWL_DELAY_FACTOR": 5,
    "KROWL_IP_CONCURRENCY": 8,
    "KROWL_IP_DELAY_MIN": 0.1,
    "KROWL_COMMIT_INTERVAL": 1,
    "DOWNLOAD_TIMEOUT": 10,
    "KROWL_RETRY_DELAY": 30,
}
# The period, in seconds after the attack, in which good hosts must have their rate again.
SETTLED, END = 15, 25


def crawled(tmp_path: Path, attack: Attack) -> Farm:
    farm = Farm(attack)
    with farm:
        crawl = Crawl(
            tmp_path / "job",
            arguments={"seeds": write_seeds(tmp_path / "seeds.txt", farm.seeds())},
            settings={**DEFAULTS, "KROWL_RESOLVE": json.dumps(attack.names())},
            feed=False,
        ).start()
        # Six seconds for the start, and for a hub that waits for its domain.
        time.sleep(STRIKES + END + 6)
        crawl.interrupt()
    before, after = farm.rate("good", -5, 0), farm.rate("good", SETTLED, END)
    print(
        f"{attack}: good hosts {before:.0f} to {after:.0f} requests/s, the others"
        f" {farm.rate('bad', SETTLED, END):.0f}, at most {farm.most} at an address"
    )
    return farm


# Half a minute of CPU, twice.
@pytest.mark.timeout(300)
def test_good_hosts_keep_their_rate_beside_thousands(tmp_path: Path) -> None:
    farm = crawled(tmp_path, Attack(pages=5, domains=256, addresses=32))
    before = farm.rate("good", -5, 0)
    assert before > 20
    assert farm.rate("good", SETTLED, END) >= 0.3 * before
    # Each address is asked ten times a second.
    assert farm.rate("bad", SETTLED, END) > 5
    assert 5 <= farm.most <= 11
