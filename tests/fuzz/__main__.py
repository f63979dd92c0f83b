"""``python -m tests.fuzz``: look for inputs that take too long, or raise what nobody foresaw.

It begins with the corpus and with the pieces of each target. Where atheris is installed, code that
was not reached before tells it which inputs to go on from; else chance does. A finding is written
to a file, with the command that runs it again; one that is mended goes into tests/fuzz/corpus,
which `make test` reads.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
import traceback
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

try:
    import atheris
except ImportError:
    atheris = None
if atheris is not None:
    with atheris.instrument_imports(include=["krowlspider"]):
        from tests.fuzz.targets import TARGETS
else:
    from tests.fuzz.targets import TARGETS

from tests.fuzz.mutation import mutated
from tests.fuzz.work import excess

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

CORPUS = Path(__file__).parent / "corpus"
FOUND = Path(".cache/fuzz/found")
# Inputs that are kept to go on from, without atheris.
_KEPT = 500


class Session:
    """The search in one target. ``findings`` counts the files it has written."""

    def __init__(self, name: str, seconds: float, size: int, seed: int):
        self.target: Target = TARGETS[name]
        self.findings = self.runs = 0
        self._name = name
        self._end = time.monotonic() + seconds
        self._size = min(size, self.target.longest)
        self._chance = Random(seed)
        self._known: set[str] = set()
        self._worst = 0.0

    @property
    def over(self) -> bool:
        return time.monotonic() > self._end

    def seeds(self) -> list[bytes]:
        files = sorted((CORPUS / self._name).glob("*"))
        return [*(path.read_bytes()[: self._size] for path in files), *self.target.pieces]

    def mutated(self, data: bytes) -> bytes:
        return mutated(data, self.target.pieces, self._chance, self._size)

    def examine(self, data: bytes) -> float:
        """Run an input; the seconds that it took. One finding of a kind is written."""
        self.runs += 1
        start = time.thread_time()
        try:
            said = excess(self.target, data)
            kind = "slow" if said else ""
        except Exception as error:  # noqa: BLE001 - each is a finding
            said = traceback.format_exc(limit=-3)
            last = traceback.extract_tb(error.__traceback__)[-1]
            kind = f"{type(error)} {last.filename} {last.lineno}"
        took = time.thread_time() - start
        if said and kind not in self._known:
            self._known.add(kind)
            self._write(data, said)
        self._worst = max(self._worst, took / (len(data) + 1000))
        return took

    def _write(self, data: bytes, said: str) -> None:
        self.findings += 1
        FOUND.mkdir(parents=True, exist_ok=True)
        path = FOUND / f"{self._name}-{hashlib.sha256(data).hexdigest()[:12]}"
        path.write_bytes(data)
        print(f"{self._name}: {said}\n  python -m tests.fuzz --target {self._name} --replay {path}")

    def report(self) -> None:
        print(
            f"{self._name}: {self.runs} inputs, {self.findings} findings,"
            f" at most {self._worst * 1e6:.2f} µs a byte"
        )


def by_chance(session: Session) -> None:
    kept = session.seeds()
    chance = Random(0)
    rates = dict.fromkeys(range(len(kept)), 0.0)
    while not session.over:
        data = session.mutated(chance.choice(kept))
        rate = session.examine(data) / (len(data) + 1000)
        # What takes longest for its bytes is gone on from.
        if len(kept) < _KEPT:
            kept.append(data)
            rates[len(kept) - 1] = rate
        elif rate > rates[place := chance.randrange(_KEPT)]:
            kept[place], rates[place] = data, rate


def by_coverage(session: Session, size: int) -> None:
    folder = FOUND.parent / "seeds"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for number, data in enumerate(session.seeds()):
        (folder / str(number)).write_bytes(data)

    def one(data: bytes) -> None:
        session.examine(data)
        if session.over:
            session.report()
            sys.stdout.flush()
            # libFuzzer cannot be left otherwise.
            os._exit(bool(session.findings))

    def mutator(data: bytes, most: int, seed: int) -> bytes:
        if seed % 2:
            return atheris.Mutate(data, most)
        return session.mutated(data)[:most]

    arguments = [
        sys.argv[0],
        "-rss_limit_mb=3000",
        f"-max_len={size}",
        "-timeout=120",
        "-verbosity=0",
    ]
    atheris.Setup([*arguments, str(folder)], one, custom_mutator=mutator)
    atheris.Fuzz()


def replay(name: str, path: Path) -> None:
    said = excess(TARGETS[name], path.read_bytes())
    print(said or f"{path} is read within its bound")
    sys.exit(bool(said))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--target", choices=TARGETS, help="one of them; all, one after the other")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--size", type=int, default=128 * 1024, help="bytes of the longest input")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", type=Path, help="a file that was found")
    chosen = parser.parse_args()
    if chosen.replay:
        replay(chosen.target, chosen.replay)
    findings = 0
    for name in [chosen.target] if chosen.target else TARGETS:
        session = Session(name, chosen.seconds, chosen.size, chosen.seed)
        if atheris is not None and chosen.target:
            by_coverage(session, chosen.size)
        by_chance(session)
        session.report()
        findings += session.findings
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
