"""The full screen of ``scrapy top``, drawn with textual."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import App
from textual.binding import Binding
from textual.widgets import DataTable, Footer, Sparkline, Static

from krowlspider.programs.running import (
    HOST_COLUMNS,
    CrawlAnswer,
    CrawlSource,
    NoCrawlError,
    counts,
    host_cells,
    one_line,
    page_line,
    title,
)

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

# Hosts in the table, and pages below it.
_HOSTS = 50
_PAGES = 8
_CHARTS = {"pages_per_second": "pages/s", "queued": "URLs queued"}


class TopApp(App[str]):
    """Asks a crawl every ``interval`` seconds. Returns why it ended, None if a person did."""

    CSS = """
    #title { background: $panel; padding: 0 1; }
    #figures, #counts { padding: 0 1; height: auto; }
    .chart { padding: 0 1; color: $text-muted; }
    Sparkline { height: 2; margin: 0 1; }
    DataTable { height: 1fr; }
    #pages { height: 9; padding: 0 1; color: $text-muted; border-top: solid $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        ("u", "sort('queued')", "By queued"),
        ("d", "sort('done')", "By done"),
        ("r", "sort('dropped')", "By dropped"),
        ("e", "sort('errors')", "By errors"),
        ("w", "sort('due_in')", "By wait"),
    ]
    ENABLE_COMMAND_PALETTE = False
    TITLE = "krowlspider"

    def __init__(self, source: CrawlSource, interval: float):
        super().__init__()
        self._source = source
        self._interval = interval
        self._by = "queued"

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield Static(id="figures", markup=False)
        for name, shown in _CHARTS.items():
            yield Static(shown, id=f"{name}-name", classes="chart", markup=False)
            yield Sparkline([], id=name)
        yield Static(id="counts", markup=False)
        table: DataTable[str | Text] = DataTable(id="hosts", cursor_type="none", zebra_stripes=True)
        table.add_columns(HOST_COLUMNS[0], *(f"{name:>9}" for name in HOST_COLUMNS[1:]))
        yield table
        yield Static(id="pages", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self._refresh()
        self.set_interval(self._interval, self._refresh)

    def action_sort(self, field: str) -> None:
        self._by = field
        self._refresh()

    def _refresh(self) -> None:
        self.run_worker(self._ask, thread=True, exclusive=True)

    def _ask(self) -> None:
        try:
            found = self._source.snapshot(self._by, _HOSTS)
        except NoCrawlError as error:
            self.call_from_thread(self.exit, str(error))
            return
        self.call_from_thread(self._show, found)

    def _show(self, found: CrawlAnswer) -> None:
        self.query_one("#title", Static).update(title(found.status))
        self.query_one("#figures", Static).update(one_line(found))
        for name, shown in _CHARTS.items():
            values = list(found.history.get(name, []))
            self.query_one(f"#{name}", Sparkline).data = values
            most = f"at most {max(values):,.0f}" if values else "no sample yet"
            text = f"{shown} in the last hour: {most}"
            self.query_one(f"#{name}-name", Static).update(text)
        named = {
            name: counts(found.status[field])
            for name, field in (("Answers", "statuses"), ("Failed", "failed"), ("Drops", "dropped"))
        }
        self.query_one("#counts", Static).update(
            "\n".join(f"{name}: {text or 'none'}" for name, text in named.items())
        )
        table = self.query_one("#hosts", DataTable)
        at = table.scroll_y
        table.clear()
        for host in found.hosts:
            name, *rest = host_cells(host)
            # A plain string would be read as markup, with brackets as in [::1].
            table.add_row(Text(name), *(f"{cell:>9}" for cell in rest))
        table.scroll_to(y=at, animate=False)
        pages = "\n".join(page_line(page) for page in found.pages[:_PAGES])
        self.query_one("#pages", Static).update(pages or "No page is over yet.")
