"""A real Prometheus finds two nodes by Consul and scrapes them while they crawl, with the
configuration of `deploy/compose/`."""

from __future__ import annotations

import json
import shutil
import time
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.nodes import Cluster
from tests.cluster.servers import Server, prometheus
from tests.extensions.test_metrics_move import UNMOVED
from tests.mockweb import MockWeb
from tests.mockweb.graph import Graph
from tests.support.crawling import ROOT
from tests.support.dashboards import DASHBOARDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

DEPLOY = ROOT / "deploy"
# More than the crawl fetches while it is scraped.
GRAPH = Graph(hosts=30, pages=200, seed=5, tls=True)
# Scrapes of each node before anything is asked, one a second: a rate needs two.
SCRAPES = 8


def configuration(folder: Path, consul: Server) -> Path:
    """Copy the configuration for clusters and its alert rules, with this Consul and one scrape a
    second; return the path of the first."""
    folder.mkdir()
    for path in (DEPLOY / "compose" / "prometheus.yml", DEPLOY / "prometheus" / "alerts.yml"):
        shutil.copy(path, folder)
    config = folder / "prometheus.yml"
    text = config.read_text()
    for documented, there in (
        ("server: consul:8500", f"server: {consul.host}:{consul.port}"),
        ("scrape_interval: 15s", "scrape_interval: 1s"),
    ):
        assert text.count(documented) == 1
        text = text.replace(documented, there)
    config.write_text(text)
    return config


class Asked:
    """Answers of a Prometheus, as of the time at which this was made."""

    def __init__(self, server: Server):
        self._url = server.url
        self.time = time.time()

    def __call__(self, query: str) -> list[dict[str, Any]]:
        """Return the series of a query."""
        words = urllib.parse.urlencode({"query": query, "time": self.time})
        with urllib.request.urlopen(f"{self._url}/api/v1/query?{words}", timeout=30) as response:
            found: list[dict[str, Any]] = json.load(response)["data"]["result"]
        return found


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """Asks the Prometheus of a crawl of two nodes that goes on."""
    folder = tmp_path_factory.mktemp("cluster")
    settings = {"KROWL_DELAY_MIN": 0.2, "KROWL_DISK_FLOOR": 1000}
    with MockWeb(graph=GRAPH) as web, Cluster(folder, web, **settings) as cluster:
        cluster.start_together("a", "b")
        with prometheus(configuration(folder / "prometheus", cluster.consul)) as server:
            scraped = f"count(count_over_time(krowl_cluster_joined[1m]) >= {SCRAPES})"
            cluster.until(lambda: [each["value"][1] for each in Asked(server)(scraped)] == ["2"])
            yield Asked(server)


def test_prometheus_finds_each_node_by_consul(ask: Asked) -> None:
    assert sorted(each["metric"]["node"] for each in ask("up")) == ["a", "b"]
    assert len(ask("up == 1")) == 2
    assert ask('krowl_crawl_info{spider="broad"}')


def test_metrics_of_a_cluster_move(ask: Asked) -> None:
    def moved(name: str) -> bool:
        return any(ask(f"max_over_time({each}[1m]) > 0") for each in (name, f"{name}_count"))

    names = UNMOVED["tests/cluster/test_prometheus.py"]
    assert [name for name in names if not moved(name)] == []
    (agreed,) = ask("count(count_values('ring', krowl_cluster_ring))")
    assert agreed["value"][1] == "1"


# Nothing of it happens in this crawl, whose names need no DNS: their quantiles are no numbers.
UNMEASURED = {"DNS look-up"}


def test_each_panel_of_the_dashboards_has_data(ask: Asked) -> None:
    empty = []
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            for query in panel.queries.values():
                asked = query.replace("$__rate_interval", "20s").replace("$instance", ".*")
                values = {each["value"][1] for each in ask(asked)}
                if not values - (set() if panel.title in UNMEASURED else {"NaN"}):
                    empty.append(f"{dashboard.name}, {panel.title}: {asked}")
    assert empty == []
