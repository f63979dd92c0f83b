"""The dashboards and alert rules name metrics that exist, and each rule fires when it should."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest
import yaml

from krowlspider.node.metrics import OWN
from tests.support.crawling import ROOT
from tests.support.dashboards import DASHBOARDS, FOLDER
from tests.support.debian import program
from tests.support.metricsdoc import rows

RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
TESTS = RULES.with_name("alerts_test.yml")
# A name in a query that is a metric of ours or of the process.
_METRIC = re.compile(r"\b(?:krowl|scrapy|process|python)_[a-z0-9_]+")


def unknown(query: str) -> set[str]:
    """Return the metrics of a query that no crawl has."""
    kinds = {name: kind for name, kind, *_ in (*rows(), *OWN)}
    parts = ("_bucket", "_sum", "_count")
    known = {name for name, kind in kinds.items() if kind != "histogram"}
    known |= {name + part for name, kind in kinds.items() if kind == "histogram" for part in parts}
    return set(_METRIC.findall(query)) - known


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def test_dashboards_are_those_of_the_script() -> None:
    """`python -m tests.support.dashboards` writes them."""
    written = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert written == {f"{each.name}.json": each.text() for each in DASHBOARDS}


def test_queries_of_dashboards_name_metrics_that_exist() -> None:
    panels = [each for board in DASHBOARDS for each in json.loads(board.text())["panels"]]
    assert len(panels) >= 60
    queries = [target["expr"] for each in panels for target in each["targets"]]
    assert set().union(*map(unknown, queries)) == set()
    assert unknown("rate(krowl_no_such_total[1m])") == {"krowl_no_such_total"}


def test_alerts_name_metrics_that_exist_and_say_what_to_do() -> None:
    found = rules()
    assert len(found) >= 17
    assert set().union(*(unknown(each["expr"]) for each in found)) == set()
    for each in found:
        assert all(each["annotations"][name] for name in ("summary", "description"))
        settings = re.findall(r"KROWL_[A-Z_]+", each["annotations"]["description"])
        page = (ROOT / "docs" / "settings.md").read_text()
        assert [name for name in settings if f"`{name}`" not in page] == []
    tested = [each["name"] for each in yaml.safe_load(TESTS.read_text())["tests"]]
    assert sorted(tested) == sorted(each["alert"] for each in found)


@pytest.mark.slow
@pytest.mark.parametrize("words", [("check", RULES), ("test", TESTS)], ids=["check", "test"])
def test_promtool_takes_the_rules_and_their_tests(words: tuple[str, Any]) -> None:
    verb, file = words
    done = subprocess.run(
        [program("promtool"), verb, "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
