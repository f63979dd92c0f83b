"""Break the promises of the code one at a time, and show which tests notice it.

The tracked files are copied to a temporary folder. There the tests of all mutations run once
unchanged, where they must pass; then those of each mutation run with it, where one must fail. The
exit code is 1 unless every mutation is killed.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from enum import Enum
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutations.databases import DATABASES
from tests.mutations.durability_and_cluster import DURABILITY_AND_CLUSTER
from tests.mutations.gemini import GEMINI
from tests.mutations.hooks import HOOKS
from tests.mutations.mutation import Mutation, StaleError
from tests.mutations.politeness_and_bounds import POLITENESS_AND_BOUNDS
from tests.mutations.reading_and_archive import READING_AND_ARCHIVE
from tests.mutations.recrawl import RECRAWL
from tests.mutations.search_and_graph import SEARCH_AND_GRAPH
from tests.mutations.settings_and_people import SETTINGS_AND_PEOPLE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

ROOT = Path(__file__).resolve().parents[2]
MUTATIONS = (
    *(*POLITENESS_AND_BOUNDS, *DURABILITY_AND_CLUSTER),
    *(*READING_AND_ARCHIVE, *SETTINGS_AND_PEOPLE, *RECRAWL, *HOOKS, *DATABASES),
    *(*GEMINI, *SEARCH_AND_GRAPH),
)
# Not tracked, and used by the tests: the interpreter, and programs that were downloaded.
_LINKED = (".venv", ".cache")
_PYTEST = ("-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "--timeout=60")
# Exit codes of pytest. All others are no verdict of the tests.
_PASSED, _FAILED = 0, 1
# Seconds after which a run is no verdict either: of the tests of a mutation, and of all tests.
_LONGEST, _LONGEST_ALL = 300.0, 3600.0


class Outcome(Enum):
    KILLED = "killed"  # a test failed
    SURVIVED = "SURVIVED"  # all tests passed
    STALE = "STALE"  # the mutation does not fit the code
    BROKEN = "BROKEN"  # the tests fail without the mutation, or did not run


class Tree:
    """A copy of the tracked files in ``folder``, in which tests run."""

    def __init__(self, folder: Path):
        self._folder = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
        )
        for name in listed.stdout.decode().split("\0"):
            source, copy = ROOT / name, folder / name
            if source.is_file() or source.is_symlink():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, copy, follow_symlinks=False)
        for name in _LINKED:
            if (ROOT / name).exists():
                (folder / name).symlink_to((ROOT / name).resolve())

    @contextmanager
    def mutated(self, mutation: Mutation) -> Iterator[None]:
        """Apply a mutation until the end of the block.

        :raises StaleError: as of `Mutation.apply`
        """
        path = self._folder / mutation.path
        source = path.read_text() if path.exists() else ""
        self._write(path, mutation.apply(source))
        try:
            yield
        finally:
            self._write(path, source)

    def _write(self, path: Path, source: str) -> None:
        path.write_text(source)
        # Python compares only time and size, and both may be the same as before.
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)

    def test(self, tests: tuple[str, ...], longest: float = _LONGEST) -> tuple[int | None, str]:
        """Run tests for at most ``longest`` seconds, and return pytest's exit code, None if they
        took longer; and the test that failed."""
        command = [str(self._folder / ".venv/bin/python"), "-m", "pytest", *_PYTEST, *tests]
        try:
            done = subprocess.run(
                command, cwd=self._folder, capture_output=True, check=False, timeout=longest
            )
        except subprocess.TimeoutExpired:
            return None, f"no end after {longest:.0f} s"
        lines = done.stdout.decode(errors="replace").splitlines()
        failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
        return done.returncode, failed[0] if failed else "\n".join(lines[-1:])


def _option(tests: tuple[str, ...], name: str) -> str:
    """Return the expression of -k or -m, "" for none."""
    return tests[tests.index(name) + 1] if name in tests else ""


def _paths(tests: tuple[str, ...]) -> tuple[str, ...]:
    """Return arguments of pytest without options, which are -k and -m and stand behind paths."""
    return tuple(takewhile(lambda each: not each.startswith("-"), tests))


class Judge:
    """Finds the outcome of each mutation. Tests of several mutations run unchanged once."""

    def __init__(self, tree: Tree):
        self._tree = tree
        self._unchanged: dict[tuple[str, ...], tuple[int | None, str]] = {}

    def run_unchanged(self, each: Collection[tuple[str, ...]]) -> None:
        """Run all tests without a mutation: those with like options in one process. If one fails,
        `passes` runs these again to find which."""
        groups: dict[tuple[str, bool], list[tuple[str, ...]]] = {}
        for tests in each:
            groups.setdefault((_option(tests, "-m"), "-k" in tests), []).append(tests)
        for (mark, _), group in groups.items():
            paths = {path: None for tests in group for path in _paths(tests)}
            names = " or ".join(f"({_option(tests, '-k')})" for tests in group if "-k" in tests)
            code, reason = self._tree.test((*paths, "-m", mark, "-k", names), _LONGEST_ALL)
            if code == _PASSED:
                self._unchanged |= dict.fromkeys(group, (code, reason))

    def passes(self, tests: tuple[str, ...]) -> bool:
        """Return whether tests pass without a mutation."""
        if tests not in self._unchanged:
            self._unchanged[tests] = self._tree.test(tests)
        return self._unchanged[tests][0] == _PASSED

    def judge(self, mutation: Mutation) -> tuple[Outcome, str]:
        """Return the outcome of a mutation, and its reason."""
        if not self.passes(mutation.tests):
            return Outcome.BROKEN, f"without the mutation: {self._unchanged[mutation.tests][1]}"
        try:
            with self._tree.mutated(mutation):
                code, reason = self._tree.test(mutation.tests)
        except StaleError as error:
            return Outcome.STALE, str(error)
        if code == _PASSED:
            return Outcome.SURVIVED, mutation.promise
        return (Outcome.KILLED if code == _FAILED else Outcome.BROKEN), reason


def chosen(names: list[str]) -> list[Mutation]:
    """Return the mutations with these names; all if there are none.

    :raises SystemExit: there is no mutation of a name
    """
    by_name = {mutation.name: mutation for mutation in MUTATIONS}
    if unknown := [name for name in names if name not in by_name]:
        sys.exit(f"no mutation is named {', '.join(unknown)}: --list shows the names")
    return [by_name[name] for name in names] or list(MUTATIONS)


def run(mutations: list[Mutation]) -> bool:
    """Judge mutations and print a line for each; return whether all are killed."""
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="mutations-", ignore_cleanup_errors=True) as folder:
        judge = Judge(Tree(Path(folder)))
        begun = time.monotonic()
        every = {each.tests: None for each in mutations}
        judge.run_unchanged(every)
        fail = sum(not judge.passes(tests) for tests in every)
        took = time.monotonic() - begun
        print(f"Without a mutation: {fail} failures in {took:.0f} s", flush=True)
        width = max(len(mutation.name) for mutation in mutations)
        for mutation in mutations:
            begun = time.monotonic()
            outcome, reason = judge.judge(mutation)
            took = time.monotonic() - begun
            print(f"{outcome.value:8} {took:6.1f} s  {mutation.name:{width}}  {reason}", flush=True)
            outcomes.append(outcome)
    counts = ", ".join(f"{outcomes.count(each)} {each.value.lower()}" for each in Outcome)
    print(f"{len(outcomes)} mutations: {counts}")
    return outcomes.count(Outcome.KILLED) == len(outcomes)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these")
    parser.add_argument("--list", action="store_true", help="show the names, and run nothing")
    options = parser.parse_args()
    mutations = chosen(options.only)
    if options.list:
        for mutation in mutations:
            print(f"{mutation.name}  ({mutation.promise})")
        return
    sys.exit(not run(mutations))


if __name__ == "__main__":
    main()
