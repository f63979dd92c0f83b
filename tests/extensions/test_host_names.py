"""By which names a server is asked, and who may give orders to it."""

from __future__ import annotations

import socket

from krowlspider.job.monitoring.access import HostNames
from tests.support.tables import table

OWN = socket.gethostname()


@table(
    ("listens_at", "more", "reached", "names", "others"),
    [
        (
            "127.0.0.1",
            [],
            "127.0.0.1",
            [
                "localhost",
                "127.0.0.1:9410",
                "localhost:80",
                "LOCALHOST.:80",
                "[::1]:9410",
                "127.2.2.2",
            ],
            [
                OWN,
                "rebound.test",
                "192.0.2.1:9410",
                "",
                ":9410",
                "localhost.test",
                "a b",
                "[",
                "::1",
            ],
        ),
        (
            "192.0.2.5",
            [],
            "192.0.2.5",
            ["192.0.2.5", "192.0.2.5:9410", OWN, f"{OWN}:9410"],
            ["localhost", "127.0.0.1", "192.0.2.6", "rebound.test:9410", ""],
        ),
        (
            "0.0.0.0",
            ["node-a", "198.51.100.7"],
            "192.0.2.5",
            ["192.0.2.5:9410", "node-a:9410", "198.51.100.7", "NODE-A.", OWN],
            ["localhost", "127.0.0.1:9410", "rebound.test", "node-b"],
        ),
        ("0.0.0.0", [], "127.0.0.1", ["localhost:1", "127.0.0.1"], ["rebound.test", "192.0.2.5"]),
        ("::", [], "::ffff:192.0.2.5", ["192.0.2.5"], ["192.0.2.6"]),
        ("::", [], "::ffff:127.0.0.1", ["localhost"], ["rebound.test"]),
        ("::", [], "2001:db8::5", ["[2001:DB8:0::5]:9410"], ["[2001:db8::6]", "2001:db8::5"]),
        ("metrics.test", [], "192.0.2.5", ["metrics.test:9410"], ["rebound.test"]),
        ("127.0.0.1", ["proxy.test"], "127.0.0.1", ["proxy.test", "localhost"], ["rebound.test"]),
    ],
)
def test_a_server_is_asked_by_the_names_of_its_address(
    listens_at: str, more: list[str], reached: str, names: list[str], others: list[str]
) -> None:
    known = HostNames.of(listens_at, more)
    assert [name for name in names + others if known.has(name, reached)] == names


def test_only_a_loopback_address_without_other_names_is_local() -> None:
    given = [
        ("127.0.0.1", []),
        ("::1", []),
        ("localhost", []),
        ("127.0.0.1", ["a"]),
        ("0.0.0.0", []),
    ]
    assert [HostNames.of(*each).is_local for each in given] == [True, True, True, False, False]
