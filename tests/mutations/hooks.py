"""Mutations of hooks: what they may decide, what no hook can do, and what is off."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_GOCRAWL = ("tests/hooks/test_gocrawl_hooks.py",)
_MORE = ("tests/hooks/test_more_hooks.py",)
_CALLS = ("tests/hooks/test_calls.py",)
_HOOKING = "krowlspider/job/hooking"

# Name, promise, file and tests, old text, new text.
_TABLE = (
    (
        *("a-hook-beats-crawl-delay", "2", f"{_HOOKING}/page_hooks.py", _GOCRAWL),
        "least = max(rule.minimum, min(rate.floor, rule.crawl_delay_max))",
        "least = rule.minimum",
    ),
    (
        *("a-hook-beats-retry-after", "2", f"{_HOOKING}/page_hooks.py", _GOCRAWL),
        "if rate.throttling or rate.errors or in_flight.wait > rule.delay(rate):",
        "if False:",
    ),
    (
        *("a-hook-fetches-anywhere", "the guard holds", "krowlspider/engine/hooked_handler.py"),
        *(_GOCRAWL, "            raise as_scrapy(error) from error", "            pass"),
    ),
    (
        *(
            "robots-left-out-by-a-hook",
            "a robots.txt is archived",
            _HOOKING + "/page_hooks.py",
            _MORE,
        ),
        *("found is not False or in_flight.robots_fetch is not None", "found is not False"),
    ),
    (
        *("a-hook-lifts-all-rules", "scope lifts the spider's rules alone"),
        *("krowlspider/job/intake.py", _MORE, "reasons[at] = reason", "reasons[at] = None"),
    ),
    (
        *("no-revisit", "filter forces a revisit", _HOOKING + "/link_hooks.py", _GOCRAWL),
        *("[is_known and not wanted for", "[is_known for"),
    ),
    (
        *("owner-decides-again", "the finder's hooks decide", "krowlspider/job/cluster_traffic.py"),
        *(_MORE, "entry, is_decided=True)", "entry)"),
    ),
    (
        *("state-lost-at-a-retry", "the state comes with the page", "krowlspider/job/flights.py"),
        *(_MORE, "entry.seed, entry.state = before.seed, before.state", "entry.seed = before.seed"),
    ),
    (
        *("cookies-of-cut-answers", "redacted values are in no record"),
        *("krowlspider/engine/handler.py", _MORE),
        "self._hooks is None or await self._is_kept(self._hooks, in_flight, error.exchange)",
        "True",
    ),
    (
        *("no-hook-is-cut-off", "a hook that fails is cut off", "krowlspider/hooks/calls.py"),
        *(_CALLS, "if self._bad >= BAD_MAX:", "if False:"),
    ),
    (
        *("outside-is-not-durable", "URLs from outside are on disk", _HOOKING + "/life.py"),
        *(("tests/hooks/test_outside.py",), "            await self._make_durable()\n", ""),
    ),
)
HOOKS = tuple(
    Mutation(name, promise, path, old, new, tests)
    for name, promise, path, tests, old, new in _TABLE
)
