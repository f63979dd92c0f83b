"""The examples of docs/library.md run, and are typed."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.library.webs import REACHING
from tests.mockweb import MockWeb
from tests.support.crawling import CONTACT, DEADLINE, ROOT
from tests.support.crawls import ROBOTS, page

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs" / "library.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
# What each example prints, by its place on the page. The web has these pages.
PRINTED = [
    "200 {0}  2\n200 {0}more More 0\n404 {0}gone  0\nfinished\n",
    """{0} text/html <a href=/more>x</a><a href=/gone>x</a>
{0}more text/html <title>More</title>
{0}gone text/html gone
""",
    "['{0}', '{0}more']\n['{0}gone']\n",
    "shutdown\n",
]
WEB = [
    ROBOTS,
    page("/", "<a href=/more>x</a><a href=/gone>x</a>"),
    page("/more", "<title>More</title>"),
    page("/gone", "gone", status=404),
]


def program(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run this Python in a folder of its own; assert that it succeeds."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def reaching() -> dict[str, str]:
    """Return the environment by which a program reaches the mock web: settings of the project."""
    names = {"KROWL_RESOLVE": json.dumps({"*.org": "127.0.0.1"})}
    given = {**REACHING, **names}
    return {name: str(value) for name, value in given.items() if name.startswith("KROWL_")}


def test_each_example_is_known() -> None:
    assert len(EXAMPLES) == len(PRINTED)
    for example in EXAMPLES:
        ast.parse(example)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(PRINTED)))
def test_an_example_runs(tmp_path: Path, number: int) -> None:
    """In a folder of its own, with neither a project nor settings in it."""
    with MockWeb(spec=WEB) as web:
        url = web.url("example.org")
        text = EXAMPLES[number].replace("https://example.org/", url)
        (tmp_path / "example.py").write_text(text.replace("you@example.org", CONTACT))
        done = program(tmp_path, "example.py", **reaching())
    assert done.stdout == PRINTED[number].format(url)
    assert done.stderr == ""


@pytest.mark.slow
def test_the_examples_are_typed(tmp_path: Path) -> None:
    """Strictly, and a wrong use of a page or an argument is found."""
    for number, example in enumerate(EXAMPLES):
        (tmp_path / f"example{number}.py").write_text(example)
    wrong = [
        'crawl("example.org")',
        'crawl("example.org", contact="a@b.org", max_page=3)',
        'crawl("example.org", contact="a@b.org", max_pages="3")',
        'next(run("example.org", contact="a@b.org")).titel',
        'next(run("example.org", contact="a@b.org")).status + ""',
    ]
    for number, use in enumerate(wrong):
        text = f"from krowlspider import crawl, run\n\n{use}\n"
        (tmp_path / f"wrong{number}.py").write_text(text)
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\n")
    examples = [f"example{number}.py" for number in range(len(EXAMPLES))]
    program(tmp_path, "-m", "mypy", *examples)
    with pytest.raises(AssertionError) as found:
        program(tmp_path, "-m", "mypy", *(f"wrong{number}.py" for number in range(len(wrong))))
    for number in range(len(wrong)):
        assert f"wrong{number}.py:3: error:" in str(found.value)
