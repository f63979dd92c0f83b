"""Mutations of the schedule of recrawls: when a page is asked again, and what its answers mean."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_RECRAWL = "krowlspider/recrawl"
_VALIDATORS = f"{_RECRAWL}/validators.py", ("tests/recrawl/test_validators.py",)
_TRUST = f"{_RECRAWL}/trust.py", ("tests/recrawl/test_trust.py",)
_ESTIMATE = f"{_RECRAWL}/estimate.py", ("tests/recrawl/test_estimate.py",)
_VALUE = f"{_RECRAWL}/value.py", ("tests/recrawl/test_value.py",)
_HINTED = f"{_RECRAWL}/value.py", ("tests/recrawl/test_hints.py",)
_PRIOR = f"{_RECRAWL}/prior.py", ("tests/recrawl/test_prior.py",)
_THRESHOLD = f"{_RECRAWL}/threshold.py", ("tests/recrawl/test_threshold.py",)
_HINTS = f"{_RECRAWL}/hints.py", ("tests/recrawl/test_hints.py",)
_GONE = f"{_RECRAWL}/gone.py", ("tests/recrawl/test_gone.py",)
_FORECAST = f"{_RECRAWL}/forecast.py", ("tests/recrawl/test_forecast.py",)
_TESTS = ("tests/frontier/test_due_pages.py",)
_PAGES = "krowlspider/frontier/pages"
_SAMPLE = f"{_PAGES}/sample.py", ("tests/frontier/pages/test_sample.py",)
_DUE = "krowlspider/frontier/due_pages.py", _TESTS
_PLANNER = f"{_PAGES}/planner.py", _TESTS
_ROWS = "krowlspider/frontier/pages/rows.py", _TESTS
_ROW = "krowlspider/frontier/pages/rows.py", ("tests/frontier/pages/test_rows.py",)
_FORMAT = f"{_PAGES}/row.py", ("tests/frontier/pages/test_row.py",)
_EXPORT = "krowlspider/frontier/admin/export.py", ("tests/frontier/pages/test_rows.py",)
_INDEXNOW = f"{_RECRAWL}/indexnow.py", ("tests/recrawl/test_indexnow.py",)
_VERSIONS = "krowlspider/corpus/copies/versions.py", ("tests/corpus/test_versions.py",)
_QUEUES = "krowlspider/frontier/entry_queues.py", _TESTS
_TRANSFER = "krowlspider/frontier/moves/transfer.py", _TESTS
_REBUILD = "krowlspider/frontier/admin/repair.py", _TESTS
_REPAIRED = "krowlspider/frontier/admin/repair.py", ("tests/frontier/pages/test_rows.py",)
_DAMAGED = f"{_PAGES}/row.py", ("tests/frontier/pages/test_rows.py",)
_DEPARTURE = "krowlspider/frontier/moves/departure.py", ("tests/frontier/pages/test_rows.py",)

# Name, promise, file and tests, old text, new text.
_TABLE = (
    (
        *("no-share-of-the-turns", "pages again have a share of the turns", _QUEUES),
        *("queue.in_turn(share) if share else queue.in_order()", "queue.in_order()"),
    ),
    (
        *("stale-pairs-count", "a page is asked at the time of its row", _DUE),
        *("if row.due != tick * TICK or page_key in taken:", "if page_key in taken:"),
    ),
    (
        *("due-before-its-time", "no page is due before its time", _DUE),
        *("if tick > now:", "if tick > now + 1:"),
    ),
    (
        *("not-judged-again", "a page that comes up is judged again", _DUE),
        *("if not planning.is_worth(host, row):", "if False:"),
    ),
    (
        *("deferred-hosts-fill-up", "a deferred host tries its queue first", _DUE),
        *("if host.state is DEFERRED and host.queue.queued:", "if False:"),
    ),
    (
        *("no-plan-after-a-start-without", "each row gets a plan", _DUE),
        *("place.after, place.is_filled = PAGES, False", "pass"),
    ),
    (
        *("a-page-gone-comes-back", "pages that are missing are dropped", _ROWS),
        *(
            "new.absence = seen.absence.answered(",
            "new.absence = seen.absence or seen.absence.answered(",
        ),
    ),
    (
        *("demands-pile-up", "a page that is planned anew adds the difference", _ROWS),
        *("new, seen.demand)", "new, 0.0)"),
    ),
    (
        *("sites-are-not-learnt", "a new page changes as its site does", _ROWS),
        *("planning.learn(lease.host, seen, new.last, changed=has_changed)", "pass"),
    ),
    (
        *("no-budget-of-the-crawl", "the higher threshold decides", _PLANNER),
        *(
            "max(self._demand_of_host(host).threshold, self._planner.crawl.threshold)",
            "self._demand_of_host(host).threshold",
        ),
    ),
    (
        *("demand-of-hosts-that-left", "a host that leaves takes its demand along", _PLANNER),
        *("self._left.append(HostDemand.read(found).counted)", "pass"),
    ),
    (
        *("next-times-stay-behind", "a host takes its next times along", _TRANSFER),
        *("taken = planner.take(name, taken, batch)", "pass"),
    ),
    (
        *("no-buckets-after-a-repair", "buckets are made anew after a repair", _REBUILD),
        *("self._batch.delete(schema.DUE_PLACE)", "pass"),
    ),
    (
        *("revisit-without-conditions", "a 304 that was not asked for is no revisit", _VALIDATORS),
        *("    if sent == NO_VALIDATORS:\n", "    if sent is None:\n"),
    ),
    (
        *("304-about-another-version", "a 304 counts for the version asked about", _VALIDATORS),
        *("return Meaning.NOT_MODIFIED if _is_about(sent, answered) else", "return"),
    ),
    (
        *("conditions-for-another-url", "no conditions after a change of scheme", _VALIDATORS),
        *(" or page.url != url", ""),
    ),
    (
        *("conditions-after-an-error", "no conditions after an error or redirect", _VALIDATORS),
        *("if page.status not in _KEPT_FROM or", "if"),
    ),
    (
        *("no-sample-in-full", "one request in fifty is in full", _VALIDATORS),
        *("% IN_FULL_EVERY == 0", "% IN_FULL_EVERY < 0"),
    ),
    (
        *("tags-without-quotes", "a malformed tag is left out", _VALIDATORS),
        *("if _ETAG.fullmatch(values[0]) else", "if _ETAG else"),
    ),
    (
        *("date-judged-by-our-clock", "a server's clock may be off", _VALIDATORS),
        *("if sent_at is None else sent_at", "if True else sent_at"),
    ),
    (
        *("a-date-of-this-second", "a change in the second of an answer is seen", _VALIDATORS),
        *("LeftOut.DATE_NOW if changed == sent_at", "LeftOut.DATE_NOW if changed is sent_at"),
    ),
    (
        *("lies-are-forgiven", "a host that lies is asked in full", _TRUST),
        *("return not (lies or useless)", "return not useless"),
    ),
    (
        *("changes-stay-hidden", "a host that says 304 for changed text is found", _TRUST),
        *("return self.hidden >= _HIDDEN", "return False"),
    ),
    (
        *("a-304-wears-lies-away", "a 304 is no proof of honesty", _TRUST),
        *(
            "record._replace(not_modified=min(record.not_modified + 1, COUNT_MAX))",
            'record.counted("not_modified")',
        ),
    ),
    (
        *("changes-are-counted", "unseen changes are no bias", _ESTIMATE),
        *("    if interval < 1:\n", "    if interval:\n"),
    ),
    (
        *("a-jump-freezes-a-page", "a jump of the clock hardly counts", _ESTIMATE),
        *("min(max(interval, 0.0), _INFLUENCE * seconds)", "interval"),
    ),
    (
        *("the-mean-rate-decides", "the value is expected over the rates", _VALUE),
        *("elapsed * exp(-shape * logarithm)", "elapsed * exp(-shape * elapsed / seconds)"),
    ),
    (
        *("no-jitter", "pages of one fetch are not due together", _VALUE),
        *("(1 + JITTER * (2 * chance - 1))", "1.0"),
    ),
    (
        *("postponed-to-the-past", "a postponed page is due later", _VALUE),
        *("_POSTPONED = 0.7", "_POSTPONED = 1.2"),
    ),
    (
        *("blind-hints", "a hint that is right by chance is worth nothing", _HINTED),
        *("gain = 1 - (1 - probability) / stays", "gain = probability"),
    ),
    (
        *("sites-are-alike", "a new page changes as its site does", _PRIOR),
        *("* site.factor)", "* 1.0)"),
    ),
    (
        *("zero-is-a-budget", "nothing is learnt from a budget of 0", _THRESHOLD),
        *("    if requests <= 0:\n        return threshold", "    requests = requests or 1e-9"),
    ),
    (
        *("a-threshold-that-stays", "the requests follow the budget", _THRESHOLD),
        *("_GAIN = 0.25", "_GAIN = 0.0"),
    ),
    (
        *("a-threshold-that-swings", "a step of the budget is followed", _THRESHOLD),
        *("over = demanded / sqrt(threshold)", "over = demanded / threshold * 60"),
    ),
    (
        *("slow-hosts-take-the-budget", "slow hosts leave their part to others", _THRESHOLD),
        *("return min(demanded, requests * PLANNED * sqrt(threshold))", "return demanded"),
    ),
    (
        *("future-dates", "future dates are worth nothing", _HINTS),
        *("not _OLDEST <= date <= now", "not _OLDEST <= date"),
    ),
    (
        *("errors-are-changes", "an error that may pass is no change", _ROW),
        *("not (may_pass(row.status) or row.absence.is_doubtful)", "not row.absence.is_doubtful"),
    ),
    (
        *("one-404-is-a-change", "a page is missing by two answers", _ROW),
        *("not (may_pass(row.status) or row.absence.is_doubtful)", "not may_pass(row.status)"),
    ),
    (
        *("demand-of-a-lost-row", "a row that is forgotten leaves no demand", _PLANNER),
        *("self._lost.append((self._host(name), less))", "pass"),
    ),
    (
        *("times-of-another-clock", "a node without a schedule takes no times", _TRANSFER),
        *("[(identity, without_plan(row, name)) for identity, row in taken]", "taken"),
    ),
    (
        *("any-folder-of-a-key", "the folder of a key bounds its URLs", _INDEXNOW),
        *("if not _path(url).startswith(folder)", "if False"),
    ),
    (
        *("any-host-of-a-submission", "a site names its own pages only", _INDEXNOW),
        *("or host_of(whole) != host", ""),
    ),
    (
        *("urls-without-end-wait", "submissions that wait are bounded", _INDEXNOW),
        *("if self.held + count > HELD_MAX:\n            raise", "if False:\n            raise"),
    ),
    (
        *("a-post-is-its-page", "the answer to a POST is no version of its page", _VERSIONS),
        *("url_digest(fetch.resource or line.url)", "url_digest(line.url)"),
    ),
    (
        *("shared-dates", "a date that all pages share is worth nothing", _HINTS),
        *("is_shared and date == self._shared", "False"),
    ),
    (
        *("a-hint-puts-off", "a hint only brings a page forward", _HINTS),
        *("claimed <= last_fetch or at >= due", "claimed <= last_fetch"),
    ),
    (
        *("moved-pages-as-often", "pages that moved are asked ever more seldom", _GONE),
        *("if self.state is PageState.PRESENT:", "if self.state is not PageState.MISSING:"),
    ),
    (
        *("gone-at-once", "one 404 is no tombstone", _GONE),
        *("CONFIRMED = 2", "CONFIRMED = 1"),
    ),
    (
        *("dropped-by-a-jump", "a jump of the clock drops no page", _GONE),
        *(" and old and self.answers >= _DROPPED_ANSWERS", " and old"),
    ),
    (
        *("politeness-is-not-seen", "a forecast keeps to politeness", _FORECAST),
        *("self._point(max(step, self.own(faster)))", "self._point(step)"),
    ),
    (
        *("posteriors-are-means", "a rate that is not known is expected", _FORECAST),
        *("expected_value(estimate, 1.0, rest) + rest * stays", "rest * stays"),
    ),
    (
        *("a-host-counts-once-a-hit", "a host counts by its pages", _SAMPLE),
        *("len(some) * total / len(keys) / pages", "len(some) * total / len(keys)"),
    ),
    (
        *("tags-as-they-are", "a tag of digits has half of its bytes", _FORMAT),
        *("packed = _packed(self.etag)", "packed = None"),
    ),
    (
        *("cut-rows-are-read", "a row that is cut off is known", _FORMAT),
        *("if len(data) - at != size:", "if len(data) < at:"),
    ),
    (
        *("any-values-are-a-row", "values that no row holds are damage", _FORMAT),
        *('if "://" not in row.url:', "if False:"),
    ),
    (
        *("demands-of-no-number", "a row whose worth is no number is damaged", _FORMAT),
        *("if not 0.0 <= row.weight < inf:", "if False:"),
    ),
    (
        *("damage-stops-commits", "a damaged row counts as missing", _DAMAGED),
        *(
            "except DamagedRow as error:\n        logger",
            "except KeyError as error:\n        logger",
        ),
    ),
    (
        *("damage-is-handed-over", "no hand-over takes a damaged row along", _DEPARTURE),
        *("elif not is_later(row):", "elif False:"),
    ),
    (
        *("a-repair-keeps-damage", "a repair removes damaged rows", _REPAIRED),
        *("self._change(key, None)\n                    self._find", "self._find"),
    ),
    (
        *("any-clock-is-stored", "a clock that says nonsense stops no commit", _ROW),
        *("held(fetched.started) - row.last", "fetched.started - row.last"),
    ),
    (
        *("an-import-forgets-absence", "an import knows which pages are missing", _EXPORT),
        *("absence=self.absence.absence if self.absence else Absence(),", ""),
    ),
)

RECRAWL = tuple(
    Mutation(name, promise, path, old, new, tests)
    for name, promise, (path, tests), old, new in _TABLE
)
