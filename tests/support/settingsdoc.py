"""``python -m tests.support.settingsdoc``: write docs/settings.md from krowlspider/settings.py."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider import settings
from krowlspider.config.validation import ROWS
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = ROOT / "docs" / "settings.md"
HEAD = """# Settings

Every setting that the project sets, with its default, its unit and its meaning. They are those of
the table [`{source}`](../{source}); `make docs` writes this page anew.

Give another value for one crawl with `-s NAME=VALUE`, with scrapyd by `-d setting=NAME=VALUE`, or
in a settings module of your own. On a command line a list is text with commas, a mapping is JSON,
and a number of bytes may have a unit: `-s KROWL_PORTS=80,443`, `-s KROWL_DISK_FLOOR=2GB` (kB, MB,
GB, TB; KiB, MiB, GiB, TiB).

A variable of the environment gives a setting too, by its name: each `KROWL_` setting, `JOBDIR`,
`REDIS_URL` and `REDIS_URL_FILE`. It replaces the default, and what `settings.py` has. `-s` and the
`custom_settings` of a spider replace it. An empty variable counts as unset.

Values of `KROWL_` settings are checked when a crawl starts. An unknown `KROWL_` name or an
impossible value stops the start with exit code 2. Scrapy's other settings work as [Scrapy documents
them](https://docs.scrapy.org/en/2.19/topics/settings.html), those of delays as
[spiders.md](spiders.md#delays) says. One that has no effect here is named in a warning at the
start, with what is done in its place. A name that looks like a misspelt known one
(`DOWNLAOD_DELAY`) gives a warning.
"""
_SECTION = re.compile(r"# --- (.*?) -+$")
# Characters of the longest default that is shown.
_LONGEST = 60


def page() -> str:
    """Return the text of docs/settings.md."""
    source = Path(settings.__file__)
    lines = [HEAD.format(source=source.relative_to(ROOT))]
    for section, names in _sections(source.read_text()):
        lines += [f"## {section}", "", "| setting | default | unit | meaning |"]
        lines += ["| --- | --- | --- | --- |"]
        for name, default, meaning in names:
            unit = ROWS[name].unit if name in ROWS else ""
            lines.append(f"| `{name}` | {default} | {unit} | {meaning} |")
        lines.append("")
    return "\n".join(lines)


def _sections(source: str) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Yield the sections of the module with their settings: name, default, meaning."""
    lines = source.splitlines()
    title, found = "", []
    starts = {
        number: match[1] for number, line in enumerate(lines) if (match := _SECTION.match(line))
    }
    for node in _assignments(ast.parse(source).body):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        assert isinstance(target, ast.Name)
        # Those without a value have Scrapy's default.
        if node.value is None or not target.id.isupper():
            continue
        section = [text for number, text in starts.items() if number < node.lineno][-1]
        if section != title:
            if found:
                yield title, found
            title, found = section, []
        if target.id not in {name for name, _, _ in found}:
            found.append(
                (target.id, _default(source, node.value), _meaning(lines, node, target.id))
            )
    yield title, found


def _assignments(body: list[ast.stmt]) -> Iterator[ast.Assign | ast.AnnAssign]:
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            yield node
        elif isinstance(node, ast.Try):
            # Settings that need an installed package.
            yield from _assignments(node.orelse)


def _default(source: str, value: ast.expr) -> str:
    text = ast.get_source_segment(source, value) or ""
    if "\n" in text or len(text) > _LONGEST:
        return "see the module"
    return f"`{text.removeprefix('f')}`".replace("{{", "{").replace("}}", "}")


def _meaning(lines: list[str], node: ast.stmt, name: str) -> str:
    """Return the comment before an assignment."""
    comment: list[str] = []
    for line in reversed(lines[: node.lineno - 1]):
        if not line.startswith("# ") or _SECTION.match(line):
            break
        comment.insert(0, line.removeprefix("# "))
    text = " ".join(comment)
    if not text and name.endswith("_FILE"):
        text = f"The file that holds {name.removesuffix('_FILE')}."
    return re.sub(r"([*|<])", r"\\\1", text)


if __name__ == "__main__":
    PAGE.write_text(page())
