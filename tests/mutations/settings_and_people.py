"""Mutations of the HTTP client's connections, of sitemaps and settings, and of what people send and
see."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_SITEMAPS = "krowlspider/spiders/sitemaps.py"
_SETTINGS_FILE = "krowlspider/config/settings_file.py"
_ENDPOINT = "krowlspider/job/monitoring/endpoint.py"
_ORDERS = "krowlspider/frontier/schedule/orders.py"

SETTINGS_AND_PEOPLE = (
    # --- connections and answers ---
    Mutation(
        "closed-connection-used-again",
        "no request is sent over a connection that has ended",
        "krowlspider/fetch/connection.py",
        "return None if connection is None or connection.closed else connection",
        "return connection",
        ("tests/fetch/test_pool.py",),
    ),
    Mutation(
        "idle-connection-with-data-kept",
        "what an idle connection receives is not read as the next answer",
        "krowlspider/fetch/connection.py",
        "if self._pending is None:\n            self.close()\n",
        "if self._pending is None:\n            pass\n",
        ("tests/fetch/test_pending.py",),
    ),
    Mutation(
        "answer-at-any-rate",
        "9: an answer comes at a least rate, or its connection is given up",
        "krowlspider/fetch/connection.py",
        "if not has_waited and slow and self._checked >= 0:",
        "if not has_waited and slow and self._checked > 10**9:",
        ("tests/fetch/test_pending.py",),
    ),
    Mutation(
        "chunk-framing-without-end",
        "9: chunk extensions and trailers have a bound",
        "krowlspider/fetch/http/reader.py",
        "> FRAMING_CAP + FRAMING_PER_BYTE * self.size:",
        "> 10**9 * FRAMING_CAP:",
        ("tests/fetch/http/test_chunked.py",),
    ),
    # --- sitemaps ---
    Mutation(
        "sitemaps-of-any-level",
        "9: an index in an index in an index is the end",
        _SITEMAPS,
        "if level >= LEVELS_MAX or",
        "if level > LEVELS_MAX or",
        ("tests/spiders/test_sitemaps.py", "-k", "exactly_what"),
    ),
    Mutation(
        "sitemap-speaks-for-others",
        "a sitemap names URLs of its own domain, or of the one that names it",
        _SITEMAPS,
        "own = [url for url in urls if domain_of(host_of(url)) in domains]",
        "own = list(urls)",
        ("tests/spiders/test_sitemaps.py", "-k", "exactly_what"),
    ),
    Mutation(
        "named-sitemap-taken-for-a-guess",
        "a page at a URL that a robots.txt names as a sitemap is a page",
        _SITEMAPS,
        'return bool(response.meta.get("krowl_guess")) and path == _GUESSED',
        "return path == _GUESSED",
        ("tests/spiders/test_sitemaps.py", "-k", "html_at_the_guessed"),
    ),
    # --- settings ---
    Mutation(
        "wrong-setting-taken",
        "a setting with a wrong value stops the start",
        "krowlspider/config/validation.py",
        "problems += [fault for name in names if (fault := problem(settings, name))]",
        "problems += []",
        ("tests/config/test_table.py",),
    ),
    Mutation(
        "built-in-middleware-moved",
        "robots.txt and politeness are next to the wire",
        "krowlspider/config/validation.py",
        "problems += misplaced(settings)",
        "problems += []",
        ("tests/config/test_guarantees.py",),
    ),
    Mutation(
        "secret-in-the-log",
        "Scrapy's list of settings is logged without secrets",
        "krowlspider/config/log.py",
        """_SHOWN.sub(r"\\1'...'", shown)""",
        "shown",
        ("tests/config/test_secrets.py", "-k", "list_of_settings"),
    ),
    # --- commands, orders and clients ---
    Mutation(
        "unknown-option-ignored",
        "an option that a command does not have is named",
        "krowlspider/programs/program.py",
        'if name.startswith("-") and name != STDIO:',
        'if name.startswith("-") and not name:',
        ("tests/commands/test_bad_input.py", "-k", "options_of_scrapy_frontier"),
    ),
    Mutation(
        "running-crawl-opened",
        "the folder of a running crawl is not read beside it",
        "krowlspider/programs/stopped.py",
        "if (holder := holder_of(jobdir)) is not None:\n"
        "        raise JobInUseError(jobdir, str(holder))\n    try:",
        "try:",
        ("tests/commands/test_frontier.py", "-k", "of_a_running_crawl"),
    ),
    Mutation(
        "site-writes-to-the-terminal",
        "control characters of a URL do not reach the terminal",
        "krowlspider/programs/running.py",
        "{printable(page['url'])}",
        "{page['url']}",
        ("tests/commands/test_top.py", "-k", "lines_are_those"),
    ),
    Mutation(
        "order-with-fields-of-any-type",
        "the fields of an order have the types that are documented",
        "krowlspider/views/order_fields.py",
        "if type(value) not in kinds or is_huge:",
        "if is_huge:",
        ("tests/commands/test_explain.py", "-k", "at_its_console"),
    ),
    Mutation(
        "file-of-any-length",
        "9: a file that is handed over has a bounded length, unpacked",
        "krowlspider/views/order_fields.py",
        "if self._left < 0:",
        "if self._left < -(10**12):",
        ("tests/extensions/test_import.py", "-k", "bounded_length"),
    ),
    Mutation(
        "refused-bodies-are-cut",
        "a client that sends all before it reads gets the refusal",
        _ENDPOINT,
        "elif not request.content.is_eof():",
        "elif False:",
        ("tests/extensions/test_page_server.py", "-k", "8_mb"),
    ),
    Mutation(
        "clients-without-end",
        "9: the live page has a bounded number of connections",
        _ENDPOINT,
        "if len(self._clients) > self._clients_max:",
        "if len(self._clients) > 10**6:",
        ("tests/extensions/test_page_server.py", "-k", "silent_clients"),
    ),
    Mutation(
        "client-with-any-time",
        "9: a client of the live page has a time limit",
        _ENDPOINT,
        "self._limits[handler] = loop.call_later(self._time_limit, transport.abort)\n"
        "        self._clients",
        "self._limits[handler] = loop.call_later(10**6, transport.abort)\n        self._clients",
        ("tests/extensions/test_page_server.py", "-k", "no_whole_request"),
    ),
    # --- other projects ---
    Mutation(
        "add-ons-of-a-project-replaced",
        "scrapy krowl init keeps the add-ons that a project has",
        _SETTINGS_FILE,
        'lines[index] = f"{head}{ENTRY}, {rest}"',
        "lines[index] = f\"{head}{ENTRY}}}{rest.partition('}')[2]}\"",
        ("tests/commands/test_krowl.py", "-k", "lines_come_in"),
    ),
    Mutation(
        "add-ons-set-twice-edited",
        "scrapy krowl init leaves a file alone that changes ADDONS in several places",
        _SETTINGS_FILE,
        "if len(named) > 1:",
        "if len(named) > 99:",
        ("tests/commands/test_krowl.py", "-k", "cannot_be_edited"),
    ),
    Mutation(
        "overridden-lines-written",
        "scrapy krowl init writes no line that the file overrides",
        "krowlspider/programs/krowl.py",
        "if found.get(name) != value:",
        "if False:",
        ("tests/commands/test_krowl.py", "-k", "overridden"),
    ),
    Mutation(
        "differences-of-a-spider-unsaid",
        "scrapy krowl init names what has no effect in custom_settings",
        "krowlspider/config/differences.py",
        "notes += [*without_effect(crawler.settings), *out_of_place(crawler.settings)]",
        "notes += [*without_effect(settings), *out_of_place(settings)]",
        ("tests/commands/test_krowl.py", "-k", "what_differs"),
    ),
    Mutation(
        "one-jobdir-for-all-spiders",
        "each spider of a project has a JOBDIR of its own",
        "krowlspider/addon.py",
        "name_jobdir(settings, self._spider)",
        "pass",
        ("tests/spiders/test_public.py", "-k", "bookshelf"),
    ),
    # --- standing orders ---
    Mutation(
        "rounds-begin-anew",
        "a host goes on after its block, though other blocks keep ending",
        _ORDERS,
        "        if self._released is None:\n            self._released = _FIRST_PUT_OFF\n",
        "        self._released = _FIRST_PUT_OFF\n",
        ("tests/frontier/schedule/test_orders.py", "-k", "keep_ending"),
    ),
    Mutation(
        "ends-are-written-in-two-steps",
        "no death while a block ends holds its hosts for ever",
        _ORDERS,
        "        self._put_ended(batch)\n        batch.write()\n        if self._released is None:",
        "        batch.write()\n        batch = self._store.batch()\n"
        "        self._put_ended(batch)\n        batch.write()\n        if self._released is None:",
        ("tests/frontier/schedule/test_orders.py", "-k", "no_death"),
    ),
    Mutation(
        "late-ends-are-dropped",
        "the hosts of a block that ends while others go on have a round of their own",
        _ORDERS,
        "_FIRST_PUT_OFF if self._ended.rules else None",
        "None",
        ("tests/frontier/schedule/test_orders.py", "-k", "keep_ending"),
    ),
    Mutation(
        "all-delays-applied-again",
        "an order takes no longer where there are many",
        _ORDERS,
        "self._apply([host])",
        "self._apply(self._seconds)",
        ("tests/frontier/schedule/test_orders.py", "-k", "no_longer"),
    ),
)
