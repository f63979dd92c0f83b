"""Mutations of Gemini: requests, headers, certificates, pages, robots.txt, mirrors and URLs."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_GEMINI = "krowlspider/gemini"
_QUICK = ("-m", "not slow")
_PROTOCOL = f"{_GEMINI}/protocol.py", ("tests/gemini/test_protocol.py",)
_READER = f"{_GEMINI}/reader.py", ("tests/gemini/test_client.py", "tests/gemini/test_protocol.py")
_CLIENT = f"{_GEMINI}/client.py", ("tests/gemini/test_client.py", "-k", "certificate")
_CERTIFICATES = f"{_GEMINI}/certificates.py", ("tests/gemini/test_certificates.py",)
_HANDLER = f"{_GEMINI}/handler.py", ("tests/gemini/test_small_crawl.py",)
_GEMTEXT = f"{_GEMINI}/gemtext.py", ("tests/gemini/test_gemtext.py",)
_ART = f"{_GEMINI}/ascii_art.py", ("tests/gemini/test_ascii_art.py",)
_PAGES = f"{_GEMINI}/pages.py", ("tests/gemini/test_feeds.py",)
_ROBOTS = f"{_GEMINI}/robots.py", ("tests/gemini/test_robots.py",)
_MIRRORS = f"{_GEMINI}/mirrors.py", ("tests/gemini/test_mirrors.py",)
_URLS = (
    "krowlspider/urls/gemini.py",
    ("tests/gemini/test_urls.py", "tests/gemini/test_ancestor_urls.py"),
)
_POLITENESS = (
    "krowlspider/politeness/gemini.py",
    ("tests/politeness/test_gemini.py", "tests/gemini/test_frontier.py"),
)

# Name, promise, file and tests, old text, new text.
_TABLE = (
    # --- requests, headers and bodies ---
    (
        *("urls-of-1025-bytes-are-sent", "a request has 1,024 bytes at most", *_PROTOCOL),
        *("if len(url) > URL_MAX:", "if len(url) > URL_MAX + 1:"),
    ),
    (
        *("fragments-are-sent", "a request has no fragment", *_PROTOCOL),
        *('if "#" in url:', "if False:"),
    ),
    (
        *("an-unknown-status-is-of-http", "an unknown second digit counts as 0", *_PROTOCOL),
        *("_MEANINGS[status // 10 * 10]", "_MEANINGS[50]"),
    ),
    (
        *("any-first-digit", "a malformed header is a failure", *_PROTOCOL),
        *("_FIRST, _LAST = 10, 69", "_FIRST, _LAST = 10, 99"),
    ),
    (
        *("a-redirect-to-nowhere", "a redirect and a question have a META", *_PROTOCOL),
        *("if not meta and status // 10 in (1, 3):", "if False:"),
    ),
    (
        *("meta-steers-a-terminal", "META has no control characters", *_PROTOCOL),
        *("if found := _CONTROL.search(meta):", "if found := _CONTROL.search(''):"),
    ),
    (
        *("the-last-charset", "of repeated parameters the first counts", *_PROTOCOL),
        *(
            "found.setdefault(name.lower(), quoted or plain.strip())",
            "found[name.lower()] = quoted or plain.strip()",
        ),
    ),
    (
        *("a-failure-has-a-body", "only a success has a body", *_READER),
        *("self.done = not header.is_success", "self.done = False"),
    ),
    (
        *("bodies-without-end", "a body is cut at its bound", *_READER),
        *("if self.body_size > self._max_size:", "if False:"),
    ),
    (
        *("half-a-header-is-an-answer", "an answer has a whole header", *_READER),
        *(
            'raise ConnectionLost("closed before the end of the header")',
            "return",
        ),
    ),
    (
        *("44-without-its-seconds", "a server gets the rest that it asks for", *_READER),
        *('name = b"Retry-After"', 'name = b"Meta"'),
    ),
    # --- certificates ---
    (
        *("a-request-to-anybody", "nothing is sent to a refused certificate", *_CLIENT),
        *("check=check,", "check=lambda _: None,"),
    ),
    (
        *("any-certificate", "another key is refused", *_CERTIFICATES),
        *("PinMatch.ACCEPTED if accepts_changes else PinMatch.REFUSED", "PinMatch.ACCEPTED"),
    ),
    (
        *("renewed-is-another", "a certificate of the same key is accepted", *_CERTIFICATES),
        *("if shown.key == pin.key:", "if False:"),
    ),
    (
        *("expired-stays-expected", "another key is accepted after expiry", *_CERTIFICATES),
        *("if now > pin.ends:", "if False:"),
    ),
    (
        *("a-refused-one-is-kept", "what was refused once stays refused", *_CERTIFICATES),
        *(
            "if trust is PinMatch.REFUSED:\n",
            "if trust is PinMatch.REFUSED:\n            self._put(server, shown)\n",
        ),
    ),
    (
        *("any-number-of-servers", "certificates are bounded", *_CERTIFICATES),
        *("if trust is PinMatch.FIRST and self.kept >= self._most:", "if False:"),
    ),
    (
        *("a-record-for-each-answer", "a certificate has one record", *_CERTIFICATES),
        *("pin is not None and not pin.is_recorded and", "pin is not None and"),
    ),
    (
        *("no-delay-of-gemini", "KROWL_GEMINI_DELAY_MIN", *_HANDLER),
        *("in_flight.must_wait(self._least_delay)", "pass"),
    ),
    (
        *("a-cut-answer-is-lost", "an answer without close_notify is accepted", *_HANDLER),
        *("if not isinstance(error, NoCloseNotify):", "if True:"),
    ),
    (
        *("a-cut-answer-is-not-counted", "answers without close_notify are counted", *_HANDLER),
        *("self._count(TRUNCATED_COUNT)", "pass"),
    ),
    # --- pages ---
    (
        *("links-of-a-picture", "preformatted text has no links", *_GEMTEXT),
        *('elif start == "`" and line.startswith(_FENCE):', "elif False:"),
    ),
    (
        *("pictures-are-read", "text has no pictures", *_GEMTEXT),
        *("if not is_art(part.text):", "if True:"),
    ),
    (
        *("a-banner-is-read", "blocks in front of everything are left out", *_GEMTEXT),
        *("elif number >= leading:", "elif True:"),
    ),
    (
        *("a-manual-page-is-empty", "a page of blocks alone has their text", *_GEMTEXT),
        *(
            "leading = self._leading if self._leading < len(self._parts) else 0",
            "leading = self._leading",
        ),
    ),
    (
        *("any-heading-is-the-title", "the title is of the first level", *_GEMTEXT),
        *('if not self._title and not line.startswith("##"):', "if not self._title:"),
    ),
    (
        *("any-number-of-links", "links of a page are bounded", *_GEMTEXT),
        *("if len(links) < LINKS_MAX and len(reference)", "if len(reference)"),
    ),
    (
        *("code-is-a-picture", "99 % of blocks are told apart", *_ART),
        *("if share >= _LIKELY or _is_dense(shown):", "if share >= _LIKELY:"),
    ),
    (
        *("feeds-are-not-followed", "links are read from Atom and RSS", *_PAGES),
        *("if said.essence in TYPES:", "if False:"),
    ),
    (
        *("pages-without-language", "the language is that of the media type", *_PAGES),
        *('page = ReadPage(lang=(said.languages or ("",))[0][:MAX_LANG])', "page = ReadPage()"),
    ),
    # --- robots.txt, mirrors ---
    (
        *("one-activity-is-asked", "the groups of all activities hold together", *_ROBOTS),
        *("for name in sorted(names & VIRTUAL)]", "for name in sorted(names & VIRTUAL)[:1]]"),
    ),
    (
        *("an-empty-group-lifts-nothing", "an empty Disallow lifts the group of all", *_ROBOTS),
        *(
            "if ALL in names and (not virtual or any(each is None or each for each in virtual)):",
            "if ALL in names:",
        ),
    ),
    (
        *("its-own-name-lifts-nothing", "an empty Disallow of the name permits", *_ROBOTS),
        *("if any(not prefixes for prefixes in own):", "if False:"),
    ),
    (
        *("mirrors-without-end", "100 links of a kind of mirror", *_MIRRORS),
        *('MirrorGroup(f"{host} {kind}", MIRRORED_MAX)', 'MirrorGroup(f"{host} {kind}", 10**9)'),
    ),
    (
        *("games-without-end", "500 queries of a path", *_MIRRORS),
        *("QUERIES_MAX if mark else FOLDER_MAX", "FOLDER_MAX"),
    ),
    (
        *("calendars-without-end", "folders that differ by numbers are one", *_MIRRORS),
        *('_NUMBERS.sub("0", folder[:_NAMED])', "folder[:_NAMED]"),
    ),
    (
        *("groups-without-bound", "groups of links are bounded", *_MIRRORS),
        *("if len(self._counts) > self._groups_max:", "if False:"),
    ),
    # --- URLs, answers and rules ---
    (
        *("user-names-in-urls", "a gemini URL has no user name", *_URLS),
        *('if "@" in authority:', "if False:"),
    ),
    (
        *("long-urls-are-queued", "a gemini URL has 1,024 bytes at most", *_URLS),
        *("return url if len(url) <= URL_MAX else None", "return url"),
    ),
    (
        *("the-host-of-the-web", "a Gemini server is a host of its own", *_URLS),
        *("{port or _DEFAULT}", "{port}"),
    ),
    (
        *("the-default-port-stays", "a page has one URL", *_URLS),
        *("{'' if port == _DEFAULT else port}", "{port}"),
    ),
    (
        *("gemini-without-the-setting", "without KROWL_GEMINI no URL is followed"),
        *("krowlspider/urls/gemini.py", ("tests/gemini/test_off.py",)),
        *("_Switch.is_on = is_on", "_Switch.is_on = True"),
    ),
    (
        *("robots-txt-forbids-itself", "robots.txt may always be asked for", *_POLITENESS),
        *('if path == "/robots.txt":', "if False:"),
    ),
    (
        *("wildcards-are-characters", "a wildcard is taken in both ways", *_POLITENESS),
        *("return True if self._patterns is None else self._patterns.allow(path)", "return True"),
    ),
    (
        *("missing-is-permanent", "51 and 52 are dropped as missing", *_POLITENESS),
        *("_MISSING = frozenset({51, 52})", "_MISSING = frozenset({51})"),
    ),
    (
        *("44-is-an-error", "44 doubles the delay", *_POLITENESS),
        *("frozenset(range(40, 50)) - {44}", "frozenset(range(40, 50))"),
    ),
    (
        *("a-seed-that-is-never-asked", "without KROWL_GEMINI such a seed is refused"),
        *("krowlspider/urls/seeds.py", ("tests/gemini/test_urls.py",)),
        'if scheme[1].lower() == "gemini" and not gemini.accepts_gemini():',
        "if False:",
    ),
    (
        *("robots-txt-of-the-web", "a redirect of robots.txt stays in Gemini"),
        *("krowlspider/frontier/robots/fetches.py", ("tests/gemini/test_frontier.py",)),
        *("is_gemini(target) != is_gemini(robots_fetch.url)", "False"),
    ),
    (
        *("redirects-to-the-web", "redirects cross with the setting alone"),
        *("krowlspider/engine/requests.py", ("tests/gemini/test_redirects.py",)),
        *("elif is_gemini(url) != is_gemini(response.url) and not self._crosses:", "elif False:"),
    ),
    (
        *("redirects-without-end", "five redirects in a row"),
        *("krowlspider/engine/requests.py", ("tests/gemini/test_redirects.py",)),
        *("min(self._most, REDIRECTS_MAX) if is_gemini(url) else self._most", "self._most"),
    ),
    (
        *("one-node-of-the-web-alone", "all nodes of a cluster crawl Gemini, or none"),
        "krowlspider/cluster/register/state.py",
        ("tests/cluster/test_register_starts.py", "-k", "gemini"),
        *("info is None or info.gemini == gemini", "True"),
    ),
)
GEMINI = tuple(
    Mutation(name, promise, path, old, new, (*tests, *_QUICK))
    for name, promise, path, tests, old, new in _TABLE
)
