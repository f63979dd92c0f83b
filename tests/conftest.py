"""What every test runs under."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from inspect import iscoroutinefunction, signature
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import settings

from tests.support import warm
from tests.support.crawling import end_all
from tests.support.simulated_loop import clocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

# A loaded machine is not a failure; pytest's own timeout finds what hangs.
settings.register_profile("krowlspider", deadline=None)
settings.load_profile("krowlspider")

# A quick run tries one in so many examples of a property.
FEWER = 10

# Modules of a minute and more, the longest first.
LONGEST = (
    *("test_kill_points.py", "test_chaos_nodes.py", "test_documentation.py"),
    *("test_operators_path.py", "test_kills.py", "test_politeness.py", "test_chaos_consul.py"),
    *("test_growth.py", "test_chaos_partition.py", "test_chaos_redis.py", "test_recrawl_nodes.py"),
    *("test_recrawl_kills.py", "test_pages.py", "test_flat_memory.py", "test_chaos_supervised.py"),
)

warm.enabled = True

# Thousands of collected tests stay in memory: Python's default looks through them too often.
gc.set_threshold(20_000)

# A shell that runs the tests in the background has them ignore SIGINT, and all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--few-examples", action="store_true", help=f"try one in {FEWER} examples of a property"
    )


def dealt(items: list[T], workers: int, module: Callable[[T], str]) -> list[T]:
    """Return items in an order in which each of so many workers begins with some of the LONGEST.

    With ``--dist worksteal`` a worker gets a slice of them, and others take from its end: what it
    has in front, they leave to it.
    """
    longest = [item for item in items if module(item) in LONGEST]
    longest.sort(key=lambda item: LONGEST.index(module(item)))
    others = [item for item in items if module(item) not in LONGEST]
    found: list[T] = []
    for worker in range(workers):
        own = longest[worker::workers]
        size = (len(items) - len(found)) // (workers - worker)
        more = max(size - len(own), 0)
        found += [*own, *others[:more]]
        del others[:more]
    return found + others


def _examples(item: pytest.Item) -> tuple[Any, str] | None:
    """Return the object and the attribute that hold the settings of a property."""
    if item.get_closest_marker("hypothesis") is None:
        return None
    machine, function = getattr(item, "cls", None), getattr(item, "obj", None)
    if machine is not None and hasattr(machine, "settings"):
        return machine, "settings"
    return getattr(function, "__func__", function), "_hypothesis_internal_use_settings"


@pytest.fixture
def run() -> Callable[..., None]:
    """Return what runs the coroutine of an ``async def`` test; a room may have its own."""
    return asyncio.run


def pytest_pycollect_makeitem(collector: pytest.Module, name: str, obj: object) -> None:
    if iscoroutinefunction(obj) and collector.istestfunction(obj, name):
        pytest.mark.usefixtures("run")(obj)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in signature(pyfuncitem.obj).parameters}
    pyfuncitem.funcargs["run"](pyfuncitem.obj(**given))
    return True


@pytest.fixture(autouse=True)
def _no_crawl_outlives_its_test() -> Iterator[None]:
    yield
    end_all()


@pytest.fixture(scope="module", autouse=True)
def _simulated_time_begins_at_real_time() -> None:
    """A test that simulates days does not put later tests of its process into the future."""
    clocks.show_real_time()


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.TestReport, config: pytest.Config
) -> tuple[str, str, str] | None:
    """With ``-q`` tests that pass are counted only."""
    if config.get_verbosity() < 0 and report.passed:
        return "passed" if report.when == "call" else "", "", ""
    return None


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keep Python's garbage collector from looking through all collected tests again and again."""
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have each worker begin with some of the longest."""
    if config.getoption("few_examples"):
        # The items of a parametrised test share its function.
        for owner, name in {_examples(item) for item in items} - {None}:
            found: settings = getattr(owner, name)
            fewer = settings(found, max_examples=max(found.max_examples // FEWER, 5))
            setattr(owner, name, fewer)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = dealt(items, workers, lambda item: item.path.name)
