"""``python -m tests.support.dashboards``: write the dashboards of Grafana in deploy/grafana/."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.support.crawling import ROOT
from tests.support.panels import ARCHIVE, CLUSTER, FRONTIER, MACHINE, OVERVIEW, POLITENESS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.panels import Panel

FOLDER = ROOT / "deploy" / "grafana"
# Columns of Grafana's grid, and the size of a panel in it.
_COLUMNS, _WIDTH, _HEIGHT = 24, 8, 7
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard; ``name`` is that of its file, without the suffix."""

    name: str
    panels: Sequence[Panel]

    def text(self) -> str:
        """Return the JSON of the dashboard, as Grafana imports it."""
        made = {
            "uid": f"krowlspider-{self.name}",
            "title": f"krowlspider: {self.name}",
            "tags": ["krowlspider"],
            "schemaVersion": 39,
            "editable": True,
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "timezone": "",
            "links": [
                {
                    "type": "dashboards",
                    "title": "krowlspider",
                    "tags": ["krowlspider"],
                    "asDropdown": True,
                    "keepTime": True,
                    "includeVars": True,
                }
            ],
            "templating": {"list": _variables()},
            "panels": [_panel(at, panel) for at, panel in enumerate(self.panels)],
        }
        return json.dumps(made, indent=1) + "\n"


def _variables() -> list[dict[str, Any]]:
    query = "label_values(krowl_crawl_info, instance)"
    return [
        {"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus"},
        {
            "name": "instance",
            "label": "Process",
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": query, "refId": "instance"},
            "definition": query,
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]},
        },
    ]


def _panel(at: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(at, _COLUMNS // _WIDTH)
    place = {"h": _HEIGHT, "w": _WIDTH, "x": column * _WIDTH, "y": row * _HEIGHT}
    return {
        "id": at + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _SOURCE,
                "expr": query,
                "legendFormat": legend,
            }
            for number, (legend, query) in enumerate(panel.queries.items())
        ],
    }


DASHBOARDS = (
    Dashboard("overview", OVERVIEW),
    Dashboard("frontier", FRONTIER),
    Dashboard("politeness", POLITENESS),
    Dashboard("archive", ARCHIVE),
    Dashboard("cluster", CLUSTER),
    Dashboard("machine", MACHINE),
)


if __name__ == "__main__":
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.name}.json").write_text(dashboard.text())
