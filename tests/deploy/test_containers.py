"""The image and the cluster of containers: every path, setting and name in their files exists.

Docker itself does not run here.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from krowlspider import settings
from tests.cluster.servers import free_port
from tests.support.crawling import ROOT
from tests.support.debian import program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
IGNORED = DOCKERFILE.with_name("Dockerfile.dockerignore")
COMPOSE = ROOT / "deploy" / "compose" / "compose.yaml"
# A tag of one release.
PINNED = re.compile(r"[a-z/]+:v?\d+\.\d+\.\d+(-[a-z-]+)?")


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, each with its arguments on one line."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^#.*\n", "", DOCKERFILE.read_text()))
    split = (line.split(" ", 1) for line in text.splitlines() if line)
    return [(name, rest) for name, rest in split]


def arguments(instruction: str) -> list[str]:
    return [rest for name, rest in instructions() if name == instruction]


def cluster() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return found


def nodes() -> dict[str, Any]:
    return {name: each for name, each in cluster()["services"].items() if "build" in each}


def mounts(service: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what each volume of a service is, a name or a path, and where it is mounted."""
    for text in service.get("volumes", ()):
        source, target = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", text).split(":")[:2]
        yield source, target


def test_image_has_all_that_a_crawl_needs() -> None:
    sources = {each.split()[0] for each in arguments("COPY") if not each.startswith("--from")}
    assert {"krowlspider", "extensions", "middlewares", "scrapy.cfg"} < sources
    assert [name for name in sources if not (ROOT / name).exists()] == []
    assert {f"!{name}" for name in sources} == {
        line for line in IGNORED.read_text().splitlines() if line.startswith("!")
    }
    (install,) = (each for each in arguments("RUN") if "pip install" in each)
    assert {"--require-hashes", "/requirements.txt"} < {*shlex.split(install)}
    assert all(PINNED.fullmatch(each.split()[0]) for each in arguments("FROM"))


def test_image_runs_the_crawl_without_rights_of_root() -> None:
    (user,) = arguments("USER")
    assert any("useradd --uid 10001 " in each and user in each for each in arguments("RUN"))
    names = [name for name, _ in instructions()]
    assert names.index("USER") < names.index("ENTRYPOINT")
    (variables,) = arguments("ENV")
    (volume,) = arguments("VOLUME")
    assert dict(word.split("=") for word in variables.split())["JOBDIR"].startswith(f"{volume}/")
    (check,) = arguments("HEALTHCHECK")
    assert f"127.0.0.1:{settings.PROMETHEUS_PORT[0]}/healthz" in check
    code = json.loads(check.partition("CMD ")[2])
    compile(code[2], "HEALTHCHECK", "exec")


def test_settings_of_the_nodes_exist() -> None:
    for node in nodes().values():
        words = node["command"]
        given = [word for before, word in itertools.pairwise(words) if before == "-s"]
        for name in (*node["environment"], *(word.partition("=")[0] for word in given)):
            assert hasattr(settings, name), name
    ids = [node["environment"]["KROWL_NODE_ID"] for node in nodes().values()]
    assert len(set(ids)) == len(ids) == 2


def test_names_and_paths_of_the_cluster_exist() -> None:
    found = cluster()
    for name, service in found["services"].items():
        assert PINNED.fullmatch(service["image"]) or "build" in service, name
        assert {*service["networks"]} <= {*found["networks"]}
        assert {*service.get("depends_on", ())} <= {*found["services"]}
        for source, _ in mounts(service):
            known = (COMPOSE.parent / source).exists() if "/" in source else False
            assert known or source in found["volumes"], source
        for secret in service.get("secrets", ()):
            source = secret if isinstance(secret, str) else secret["source"]
            assert source in found["secrets"]
    for secret in found["secrets"].values():
        path = f"deploy/compose/{secret['file']}"
        done = subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT, check=False)
        assert done.returncode == 0, f"{path} could be committed"


def test_each_node_has_its_own_redis_and_folder() -> None:
    services = cluster()["services"]
    seen = set()
    for name, node in nodes().items():
        redis = services[name.replace("node", "redis")]
        assert redis["secrets"] == node["secrets"]
        jobs = {target: source for source, target in mounts(node)}["/srv/krowl/jobs"]
        ((data, _),) = mounts(redis)
        seen |= {jobs, data, node["secrets"][0]["source"]}
        seconds = 60 * int(node["stop_grace_period"].removesuffix("m"))
        assert seconds > settings.KROWL_DRAIN_TIMEOUT + 2 * settings.DOWNLOAD_TIMEOUT
    assert len(seen) == 3 * len(nodes())


def test_prometheus_asks_the_consul_of_the_nodes() -> None:
    """`tests.cluster.test_prometheus` runs it with a real one."""
    (job,) = yaml.safe_load((COMPOSE.parent / "prometheus.yml").read_text())["scrape_configs"]
    (consul,) = job["consul_sd_configs"]
    urls = {node["environment"]["KROWL_CONSUL"] for node in nodes().values()}
    assert urls == {f"http://{consul['server']}"}
    sources = yaml.safe_load(
        (COMPOSE.parent / "grafana" / "datasources" / "prometheus.yaml").read_text()
    )["datasources"]
    assert [each["url"] for each in sources] == ["http://prometheus:9090"]


def test_grafana_has_the_dashboards() -> None:
    found = COMPOSE.parent / "grafana" / "dashboards" / "krowlspider.yaml"
    (provider,) = yaml.safe_load(found.read_text())["providers"]
    places = {target: source for source, target in mounts(cluster()["services"]["grafana"])}
    assert any((COMPOSE.parent / places[provider["options"]["path"]]).glob("overview.json"))
    assert places["/etc/grafana/provisioning/dashboards"] == "./grafana/dashboards"


@pytest.mark.slow
def test_redis_takes_its_password_from_the_secret(tmp_path: Path) -> None:
    """No list of processes shows it."""
    secret = tmp_path / "redis-url"
    secret.write_text("redis://:p4ss/w:rd@redis-a:6379/0\n")
    shell, option, script = cluster()["services"]["redis-a"]["command"]
    script = script.replace("$$", "$").replace("/run/secrets/redis-url", str(secret))
    port = free_port("127.0.0.1")
    server = program("redis-server")
    script = script.replace("redis-server -", f"{server} - --port {port} --bind 127.0.0.1")
    process = subprocess.Popen([shell, option, script], cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        assert answer(port, "CONFIG GET appendonly").startswith("-NOAUTH")
        assert "no" in answer(port, "AUTH p4ss/w:rd", "CONFIG GET appendonly")
        assert "p4ss" not in Path(f"/proc/{process.pid}/cmdline").read_text()
    finally:
        process.terminate()
        # The shell has become the server, which ends by itself: 143 would be a shell.
        assert process.wait(20) == 0


def answer(port: int, *commands: str) -> str:
    """Return what Redis answers to the commands."""
    end = time.monotonic() + 20
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall("".join(f"{each}\r\n" for each in (*commands, "QUIT")).encode())
                with connection.makefile() as said:
                    return said.read()
        except ConnectionRefusedError:
            assert time.monotonic() < end
            time.sleep(0.05)
