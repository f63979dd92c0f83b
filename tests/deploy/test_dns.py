"""Unbound takes the configuration of deploy/dns/, and answers a crawl from its cache."""

from __future__ import annotations

import asyncio
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.cluster.servers import free_port
from tests.fetch.dns.resolving import resolver
from tests.fetch.nameserver import A, nameserver
from tests.support.crawling import ROOT
from tests.support.debian import program

if TYPE_CHECKING:
    from pathlib import Path

CONFIGURATION = ROOT / "deploy" / "dns" / "krowlspider.conf"
NAMES: dict[str, tuple[int, list[str]] | int | None] = {"site.test": (300, ["127.0.0.9"])}


def write(folder: Path, port: int, upstream: int) -> Path:
    """Write the configuration for a user who is not root, asking one name server."""
    path = folder / "unbound.conf"
    path.write_text(
        f"{CONFIGURATION.read_text()}\n"
        f'    port: {port}\n    directory: "{folder}"\n    chroot: ""\n    username: ""\n'
        '    pidfile: ""\n    use-syslog: no\n    do-daemonize: no\n'
        "    do-not-query-localhost: no\n    local-zone: test. nodefault\n"
        f'forward-zone:\n    name: "."\n    forward-addr: 127.0.0.1@{upstream}\n'
    )
    return path


@pytest.mark.slow
def test_unbound_answers_a_crawl_from_its_cache(tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    done = subprocess.run(
        [program("unbound-checkconf"), write(tmp_path, port, 53)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr

    async def asked() -> list[tuple[str, int]]:
        async with nameserver(NAMES) as zone:
            command = [str(program("unbound")), "-d", "-c", str(write(tmp_path, port, zone.port))]
            with (tmp_path / "log").open("wb") as log:
                unbound = await asyncio.create_subprocess_exec(*command, stderr=log)
            try:
                while "start of service" not in (tmp_path / "log").read_text():
                    assert unbound.returncode is None, (tmp_path / "log").read_text()
                    await asyncio.sleep(0.05)
                # Each resolver begins with an empty cache.
                for _ in range(2):
                    async with resolver([port]) as ours:
                        assert await ours.resolve("site.test") == ["127.0.0.9"]
            finally:
                unbound.terminate()
                await unbound.wait()
            return zone.asked

    questions = asyncio.run(asked())
    assert questions.count(("site.test", A)) == 1
    # It has the sockets and buffers that the configuration asks for.
    log = (tmp_path / "log").read_text()
    assert not re.findall(r"error|warning", log), log
