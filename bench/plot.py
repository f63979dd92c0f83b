"""Plot figures as PNG files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_OURS, _THEIRS = "#1b6ca8", "#a9b4bd"
_MEASURES = {
    "pages_per_cpu_second": "pages per CPU-second",
    "pages_per_second": "pages per second",
    "rss_mb": "peak memory, MB",
}
_NAMES = {
    "hosts": "hosts",
    "concurrency": "requests in flight",
    "latency": "{} s until an answer",
}


def crawlers(figures: Mapping[str, Any], path: Path) -> None:
    """Draw a bar for each crawler: median, with least and most."""
    pyplot = _pyplot()
    found = figures["crawlers"]
    rates = {name: summary["pages_per_cpu_second"] for name, summary in found.items()}
    figure, axes = pyplot.subplots(figsize=(8, 0.6 + 0.5 * len(rates)), layout="constrained")
    names = list(reversed(rates))
    medians = [rates[name]["median"] for name in names]
    below = [rates[name]["median"] - rates[name]["least"] for name in names]
    above = [rates[name]["most"] - rates[name]["median"] for name in names]
    colours = [_OURS if name == "krowlspider" else _THEIRS for name in names]
    bars = axes.barh(names, medians, xerr=[below, above], color=colours, capsize=3)
    axes.bar_label(bars, fmt="{:,.0f}", padding=6)
    axes.set_xlabel(
        f"pages per CPU-second, all threads; {figures['pages']:,} pages of 40 kB on"
        f" {figures['web']['hosts']:,} hosts, start included"
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.12)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def lines(rows: Sequence[Mapping[str, Any]], across: str, series: str, path: Path) -> None:
    """Draw pages per CPU-second, pages per second and memory over the parameter ``across``, with a
    line for each value of ``series``."""
    pyplot = _pyplot()
    figure, panels = pyplot.subplots(1, len(_MEASURES), figsize=(12, 3.6), layout="constrained")
    values = list(dict.fromkeys(row[series] for row in rows))
    places = sorted({row[across] for row in rows})
    for axes, (measure, title) in zip(panels, _MEASURES.items(), strict=True):
        for value in values:
            points = [(row[across], row[measure]) for row in rows if row[series] == value]
            axes.plot(*zip(*points, strict=True), marker="o", label=_NAMES[series].format(value))
        axes.set_xscale("log")
        axes.set_xticks(places, [f"{place:,}" for place in places])
        axes.set_xticks([], minor=True)
        axes.set_xlabel(_NAMES[across])
        axes.set_title(title, fontsize="medium")
        axes.set_ylim(0, 1.15 * max(row[measure] for row in rows))
        axes.spines[["top", "right"]].set_visible(False)
    if len(values) > 1:
        panels[-1].legend()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def processes(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw pages per second and per CPU-second, with a bar for each way to crawl."""
    pyplot = _pyplot()
    figure, both = pyplot.subplots(1, 2, figsize=(9, 1.8), layout="constrained")
    measures = ("pages_per_second", "pages_per_cpu_second")
    for axes, measure in zip(both, measures, strict=True):
        names = [row["crawled by"] for row in reversed(rows)]
        bars = axes.barh(names, [row[measure] for row in reversed(rows)], color=_OURS)
        axes.bar_label(bars, fmt="{:,.0f}", padding=6)
        axes.set_title(_MEASURES[measure], fontsize="medium")
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.15)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _pyplot() -> Any:
    # Imported here: a process's memory counts towards the peak of its children.
    import matplotlib  # noqa: PLC0415

    matplotlib.use("agg")
    from matplotlib import pyplot  # noqa: PLC0415

    return pyplot


def draw_panels(
    panels: Mapping[str, tuple[Sequence[float], Sequence[float | None]]], path: Path
) -> None:
    """Draw a panel for each title, with its minutes and values."""
    pyplot = _pyplot()
    figure, grid = pyplot.subplots(
        (len(panels) + 1) // 2, 2, figsize=(11, 1.9 * len(panels) / 2 + 1), layout="constrained"
    )
    for axes, (title, (minutes, values)) in zip(grid.flat, panels.items(), strict=False):
        axes.plot(minutes, values, color=_OURS, linewidth=1)
        axes.set_title(title, fontsize="medium")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("minutes")
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
