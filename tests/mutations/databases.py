"""Mutations of catalogue, SQL, CDX server and gRPC: rows, locks, choices, limits and leases."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_CATALOGUE, _SQL, _CDX = "krowlspider/catalogue", "krowlspider/sql", "krowlspider/cdx"
_RPC, _SERVED = "krowlspider/rpc", "krowlspider/rpc/urlfrontier"
_QUICK = ("-m", "not slow")
_PARQUET = f"{_CATALOGUE}/parquet.py", ("tests/catalogue/test_parquet.py",)
_FOLLOW = f"{_CATALOGUE}/follow.py", ("tests/catalogue/test_follow.py",)
_ROWS = f"{_CATALOGUE}/rows.py", ("tests/catalogue/test_rows.py",)
_SINKS = ("tests/catalogue/test_sinks.py", "-k", "sqlite")
_STATEMENT = f"{_SQL}/statement.py", ("tests/sql/test_statement.py",)
_LOCKED = f"{_SQL}/database.py", ("tests/sql/test_statement.py",)
_RUNNING = f"{_SQL}/execution.py", ("tests/sql/test_execution.py",)
_OUTPUT = f"{_SQL}/output.py", ("tests/sql/test_output.py",)
_ARCHIVES = f"{_CDX}/archives.py", ("tests/cdx/test_archives.py",)
_CHOOSING = f"{_CDX}/choosing.py", ("tests/cdx/test_pywb_cases.py",)
_COLLAPSE = f"{_CDX}/choosing.py", ("tests/cdx/test_outbackcdx_cases.py",)
_FILTERS = f"{_CDX}/filters.py", ("tests/cdx/test_outbackcdx_cases.py",)
_PACE = f"{_CDX}/pace.py", ("tests/cdx/test_pace.py",)
_ROUTE = f"{_CDX}/route.py", ("tests/cdx/test_route.py",)
_FILES = f"{_CDX}/warc_files.py", ("tests/cdx/test_route.py",)
_GRPC = f"{_RPC}/grpc_server.py", ("tests/rpc/test_grpc_server.py",)
_OPTIONS = f"{_RPC}/options.py", ("tests/rpc/test_grpc_server.py",)
_RESULTS = f"{_RPC}/results.py", ("tests/rpc/test_results.py",)
_API = f"{_RPC}/api.py", ("tests/rpc/test_control.py",)
_TESTS = ("tests/rpc/urlfrontier/test_crawl.py",)
_LEASES = f"{_SERVED}/leases.py", _TESTS
_INTAKE = f"{_SERVED}/intake.py", _TESTS
_CRAWL = f"{_SERVED}/crawl.py", _TESTS
_CRAWLS = f"{_SERVED}/crawls.py", _TESTS
_RECORDS = f"{_SERVED}/records.py", _TESTS
_STREAMS = ("tests/rpc/urlfrontier/test_streams.py",)
_SENDING = f"{_RPC}/sending.py", _STREAMS
_SERVICE = f"{_SERVED}/service.py", _STREAMS

# Name, promise, file and tests, old text, new text.
_TABLE = (
    (
        *("a-deleted-crawl-loses-orders", "DeleteCrawl keeps what people have ordered", *_CRAWL),
        *("if not each.ended and not _is_of_client(each)", "if False"),
    ),
    (
        *("a-death-loses-the-next-frontier", "a pause outlives a death in DeleteCrawl", *_CRAWL),
        *("if not self._folder.frontier.exists() and (path / _NEXT).exists():", "if False:"),
    ),
    (
        *("clients-end-delays-of-people", "a client shortens no delay of a person", *_CRAWL),
        *("if ended or seconds <= before.seconds:", "if False:"),
    ),
    (
        *("full-streams-never-end", "a stream whose client is gone gives its place back"),
        *(f"{_SERVED}/streams.py", _STREAMS, "while not self._queue.empty():", "while False:"),
    ),
    (
        *(
            "silent-clients-hold-places",
            "a client that reads nothing keeps none out",
            *_SENDING,
        ),
        *("asyncio.timeout(_PATIENCE)", "asyncio.timeout(None)"),
    ),
    (
        *("a-list-in-one-step", "calls have their turn between 500 URLs of a list", *_SERVICE),
        *(
            "(each if text in each[1].url else None for each in found)",
            "filter(lambda each: text in each[1].url, found)",
        ),
    ),
    (
        *("done-without-its-tables", "a table that is added later is made", *_PARQUET),
        *("self._tables.issubset(_read(self._markers / name).tables)", "True"),
    ),
    (
        *("rows-out-of-order", "equal keys keep their order", *_PARQUET),
        *("range(len(table)), arrow.int64()", "range(len(table), 0, -1), arrow.int64()"),
    ),
    (
        *("files-of-an-earlier-try-stay", "a row is in a catalogue once", *_PARQUET),
        *("(part / file).unlink(missing_ok=True)", "pass"),
    ),
    (
        *("any-folder-is-a-catalogue", "no file of others is touched", *_PARQUET),
        *("if not names or MARKERS in names:", "if True:"),
    ),
    (
        *("a-removed-file-is-done", "a file that goes meanwhile is not done", *_FOLLOW),
        *(
            "            # It was uploaded and removed meanwhile.\n            return False",
            "            return True",
        ),
    ),
    (
        *("a-restored-database-stays-empty", "a restored sink gets what it lacks", *_FOLLOW),
        *(
            "                done = self._sink.done()\n                waiting",
            "                waiting",
        ),
    ),
    (
        *("offsets-beyond-32-bits", "a file with larger offsets is named", *_FOLLOW),
        *("if size > SIZE_MAX:", "if False:"),
    ),
    (
        *("an-old-index-is-used", "rows are those of the file as it is", *_ROWS),
        *("if line.filename != path.name:", "if False:"),
    ),
    (
        *("notes-of-others", "a note belongs to its capture", *_ROWS),
        *('record.headers.get("WARC-Concurrent-To")', 'record.headers.get("WARC-Record-ID")'),
    ),
    (
        *("half-a-file-stays", "rows and checkpoint are one transaction"),
        *(f"{_CATALOGUE}/sqlite.py", _SINKS),
        *('self._connection.execute("ROLLBACK")', 'self._connection.execute("COMMIT")'),
    ),
    (
        *("nul-in-a-database", "no text ends the copy", f"{_CATALOGUE}/statements.py", _SINKS),
        *("""if type(value) is str and "\\0" in value:""", "if False:"),
    ),
    (
        *("a-done-file-lacks-a-table", "a file is done with all tables"),
        *(f"{_CATALOGUE}/statements.py", _SINKS),
        *("if tables <= {*there.split(_SEPARATOR)}", "if there"),
    ),
    (
        *("any-table-function", "a query reads no files", *_STATEMENT),
        'if name not in _TABLE_FUNCTIONS or part["function"].get("catalog"):',
        "if False:",
    ),
    (
        *("getenv", "a query sees the crawl only", *_STATEMENT),
        *("if name in _REFUSED_FUNCTIONS:", "if False:"),
    ),
    (
        *("writes-within-with", "a query only reads", *_STATEMENT),
        *("if kind not in _NODES:", "if False:"),
    ),
    (
        *("no-lock", "the database itself reads no other files", *_LOCKED),
        *('connection.execute("SET enable_external_access = false")', "pass"),
    ),
    (
        *("a-query-of-an-hour", "a query ends at its limit of time", *_RUNNING),
        *("if self._used > limits.seconds:", "if self._used > limits.seconds + 20:"),
    ),
    (
        *("a-terminal-is-steered", "a cell can change no terminal", *_OUTPUT),
        *("text = printable(text[: CELL_MAX + 1])", "text = text[: CELL_MAX + 1]"),
    ),
    (
        *("formulas-in-csv", "CSV has no formula", *_OUTPUT),
        *("self._clean(value) if isinstance(value, str)", "value if isinstance(value, str)"),
    ),
    (
        *("a-line-twice", "an answer has each line once", *_ARCHIVES),
        *("if line != last:", "if True:"),
    ),
    (
        *("an-old-list-of-indexes", "a changed folder is looked at again", *_ARCHIVES),
        *("if changed != self._changed:", "if self._changed is None:"),
    ),
    (
        *("revisits-without-their-body", "a revisit names its original", *_CHOOSING),
        *("each.resolve(original if each.is_revisit else None)", "each.resolve(None)"),
    ),
    (
        *("limit-before-collapse", "an answer is collapsed before it is cut", *_COLLAPSE),
        *("limit if choice.collapse is None else None", "limit"),
    ),
    (
        *("slow-expressions", "no expression takes long", *_FILTERS),
        *("if steps > STEPS_MAX:", "if False:"),
    ),
    (
        *("no-share", "answers take their share of a core", *_PACE),
        *("return max(0.0, self._even_at - now)", "return 0.0"),
    ),
    (
        *("any-number-of-answers", "eight queries at a time", *_ROUTE),
        *("if self._under_way >= ANSWERS_MAX:", "if False:"),
    ),
    (
        *("any-file-is-served", "nothing but WARC files is served", *_FILES),
        *('"/" in name or "\\0" in name or not final.endswith(WARC)', '"\\0" in name'),
    ),
    (
        *("any-token", "calls need the token", *_GRPC),
        *("compare_digest(text.strip().encode(), token)", "bool(text)"),
    ),
    (
        *("any-number-of-calls", "calls at a time are bounded", *_GRPC),
        *("if self._running[kind] >= CALLS_MAX:", "if False:"),
    ),
    (
        *("open-to-all-machines", "no token is sent without TLS", *_OPTIONS),
        *("if not is_loopback(self.place[0]) and not self.cert:", "if False:"),
    ),
    (
        *("a-result-again", "a token goes on behind the last result", *_RESULTS),
        *("found[-1].offset + 1)", "found[-1].offset)"),
    ),
    (
        *("tokens-of-others", "a foreign token is refused", *_RESULTS),
        *("if not self._readers[process].may_have(at):", "if False:"),
    ),
    (
        *("a-flood-passes", "the API is asked at a rate", *_API),
        *("self._next = max(self._next, self._earliest) + count / self._rate", "pass"),
    ),
    (
        *("a-block-is-cheap", "requests are charged by their work", *_API),
        *("cost = 2 if path in _OF_MANY_HOSTS else 1", "cost = 1"),
    ),
    (
        *("many-urls-are-one", "a call is charged by its URLs", *_API),
        *("self._urls_bucket.take(count)", "self._urls_bucket.take()"),
    ),
    (
        *("a-bad-sheet-is-written", "a bad sheet changes nothing", f"{_RPC}/sheets.py"),
        *(
            ("tests/rpc/test_sheets.py",),
            "Policies.parse(whole, str(self._path), delay_min=self._delay_min)",
            "pass",
        ),
    ),
    (
        *("a-sheet-loses-its-keys", "fields that are not set stay", f"{_RPC}/sheets.py"),
        *(("tests/rpc/test_sheets.py",), "if found and keys else {}", "if False else {}"),
    ),
    (
        *("any-view", "views are checked as the query", *_STATEMENT),
        *("used |= _tables_of(query, schemas, views.keys())", "pass"),
    ),
    (
        *("a-live-folder-is-removed", "no folder of a live query is removed"),
        *(f"{_SQL}/execution.py", ("tests/sql/test_scratch.py",)),
        *("fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass"),
    ),
    (
        *("a-host-twice-at-a-time", "1", *_LEASES),
        *("if queue.leased or (", "if ("),
    ),
    (
        *("no-delay-after-a-batch", "1", *_LEASES),
        "self._frontier.schedule.release(host, rule.of(host.name).delay(host.rate))",
        "self._frontier.schedule.release(host, 0.0)",
    ),
    (
        *("leases-without-end", "a lease that ends comes back", *_LEASES),
        *("                self._end(name, item)", "                pass"),
    ),
    (
        *("an-item-of-no-mark", "what a cap refuses has failed", *_INTAKE),
        *("if name not in self._queued:", "if False:"),
    ),
    (
        *("a-client-lifts-a-block", "a client does not end the block of a person", *_CRAWL),
        *("if before is not None and not before.seconds:", "if False:"),
    ),
    (
        *("a-client-is-impolite", "no order is below the least delay", *_CRAWL),
        "least = max(delay_policy(self._settings).minimum, seconds)",
        "least = seconds",
    ),
    (
        *("a-deleted-queue-takes-urls", "a deleted queue leaves nothing", *_INTAKE),
        *("elif name[0] in self._ledger.leaving:", "elif False:"),
    ),
    (
        *("half-a-queue-stays", "a restart completes a deletion", *_CRAWL),
        *("for name in sorted(self.ledger.leaving):", "for name in ():"),
    ),
    (
        *("a-default-delay-is-deleted", "1", *_CRAWL),
        *("CrawlState(self.state.crawl_id, self.state.delay)", "CrawlState(self.state.crawl_id)"),
    ),
    (
        *("later-crawls-have-no-delay", "1", *_CRAWLS),
        *("self._open[DEFAULT].state.delay", "0.0"),
    ),
    (
        *("leases-are-purged", "what was leased meanwhile is not purged", *_CRAWL),
        *("item.phase in (Phase.LEASED, Phase.PURGED):", "item.phase is Phase.PURGED:"),
    ),
    (
        *("ids-name-folders", "11", *_CRAWLS),
        *("blake2b(name.encode(), digest_size=10).hexdigest()", "name"),
    ),
    (
        *("a-search-begins-too-late", "each lease ends at its time", *_RECORDS),
        *("self._next_time = min(self._next_time, reached)", "self._next_time = reached + 1"),
    ),
)
DATABASES = tuple(
    Mutation(name, promise, path, old, new, (*tests, *_QUICK))
    for name, promise, path, tests, old, new in _TABLE
)
