"""Mutations of search and graph: the index, queries, ranks, what a browser gets, and links."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_SEARCH, _GRAPH = "krowlspider/search", "krowlspider/graph"
_QUICK = ("-m", "not slow")
_INDEX = ("tests/search/test_builder.py",)
_BUILDER = f"{_SEARCH}/builder.py", _INDEX
_LEDGER = f"{_SEARCH}/ledger.py", _INDEX
_COPIES = f"{_SEARCH}/copies.py", _INDEX
_FORMS = f"{_SEARCH}/forms.py", ("tests/search/test_forms.py",)
_UNORDERED = "partial(searcher.search, compiled.every)"
_ONE_SALT = 'found = self._numpy.frombuffer(hashes, "<u8")'
_SCAN = f"{_SEARCH}/scan.py", _INDEX
_LINKS = f"{_SEARCH}/link_store.py", _INDEX
_DOCUMENTS = f"{_SEARCH}/documents.py", (*_INDEX, "tests/search/test_documents.py")
_GONE = f"{_SEARCH}/gone.py", _INDEX
_QUERY = f"{_SEARCH}/query.py", ("tests/search/test_query.py",)
_FILTERS = f"{_SEARCH}/filters.py", ("tests/search/test_query.py",)
_COMPILING = f"{_SEARCH}/compiling.py", ("tests/search/test_searcher.py",)
_SEARCHER = f"{_SEARCH}/searcher.py", ("tests/search/test_searcher.py",)
_NARROWED = f"{_SEARCH}/searcher.py", ("tests/search/test_narrowing.py",)
_NARROWING = f"{_SEARCH}/narrowing.py", ("tests/search/test_narrowing.py",)
_MEANT = f"{_SEARCH}/meant.py", ("tests/search/test_searcher.py",)
_OPENED = f"{_SEARCH}/opened.py", ("tests/search/test_searcher.py",)
_TEXTS = f"{_SEARCH}/texts.py", ("tests/search/test_searcher.py",)
_RANKING = (
    f"{_SEARCH}/ranking.py",
    ("tests/search/test_snippets.py", "tests/search/test_searcher.py"),
)
_AROUND = f"{_SEARCH}/neighbourhood.py", ("tests/search/test_neighbourhood.py",)
_SNIPPETS = f"{_SEARCH}/snippets.py", ("tests/search/test_snippets.py",)
_SPELLING = f"{_SEARCH}/spelling.py", ("tests/search/test_snippets.py",)
_SHOWN = ("tests/search/test_page.py",)
_PAGE = f"{_SEARCH}/page/__init__.py", _SHOWN
_ANSWERS = f"{_SEARCH}/formats.py", _SHOWN
_ROUTE = f"{_SEARCH}/route.py", _SHOWN
_BUILD = f"{_GRAPH}/build.py", ("tests/graph/test_build.py",)
_BUILD_RANKS = f"{_GRAPH}/build.py", ("tests/graph/test_search_ranks.py",)
_CUT = f"{_SEARCH}/opened.py", ("tests/search/test_cut_files.py",)
_FEEDS = f"{_SEARCH}/feeds.py", ("tests/search/test_feeds.py",)
_PARTS = f"{_GRAPH}/link_files.py", ("tests/graph/test_link_files.py", "tests/graph/test_build.py")
_CENTRALITY = ("tests/graph/test_centrality.py",)
_HYPERBALL = f"{_GRAPH}/hyperball.py", _CENTRALITY
_PAGERANK = f"{_GRAPH}/pagerank.py", _CENTRALITY
_SALSA = f"{_GRAPH}/salsa.py", ("tests/graph/test_salsa.py",)
_RANKS = f"{_GRAPH}/ranks.py", ("tests/graph/test_ranks.py",)
_HOSTS = f"{_GRAPH}/hosts.py", ("tests/graph/test_hosts.py",)
_DOMAINS = f"{_GRAPH}/domains.py", ("tests/graph/test_hosts.py",)
_REFERENCES = f"{_GRAPH}/references.py", ("tests/graph/test_references.py",)

# Name, promise, file and tests, old text, new text.
_TABLE = (
    # --- the index ---
    (
        *("done-before-the-commit", "a kill loses no document", *_BUILDER),
        *(
            "        self.segments.commit()\n        self.ledger.done(marks)",
            "        self.ledger.done(marks)\n        self.segments.commit()",
        ),
    ),
    (
        *("a-gone-file-takes-its-pages", "documents stay without their file", *_BUILDER),
        *(
            'self.counts["left out/its WARC file is gone"] += 1',
            'self._drop(key, page, IndexedState.ABSENT, "gone")',
        ),
    ),
    (
        *("an-index-of-another-form", "another form is refused", *_BUILDER),
        *("if found.form != FORM:", "if False:"),
    ),
    (
        *("noindex-is-indexed", "a page that refuses search is left out", *_BUILDER),
        *("        _check(content.signals)", "        pass"),
    ),
    (
        *("anchors-with-each-host", "followed anchors count as hosts double", *_BUILDER),
        *("elif is_last or about.hosts >= 2 * max(page.hosts, 1):", "elif True:"),
    ),
    (
        *("links-in-that-are-old", "anchors are those of the present links", *_BUILDER),
        *(
            "            self._links_in.close()\n            self._links_in = None",
            "            pass",
        ),
    ),
    (
        *("near-copies-are-shown", "of near copies one is shown", *_COPIES),
        *("(mark ^ each).bit_count() <= _APART_MAX", "mark == each"),
    ),
    (
        *("copies-fill-an-answer", "near copies take no page's place", *_SEARCHER),
        *("len(ranked) < min(end, RANKED_MAX) and matches.read_on()", "False"),
    ),
    (
        *("any-page-is-a-copy", "other texts are no near copies", *_COPIES),
        *("_APART_MAX = round(PLACES * (1 - SIMILARITY) / 2)", "_APART_MAX = PLACES"),
    ),
    (
        *("copies-are-indexed", "one of the pages with the same words is in the index", *_BUILDER),
        *("same[1].at < page.at else None", "False else None"),
    ),
    (
        *("no-words-are-the-same", "pages without a word are no copies", *_BUILDER),
        *("is_compared = bool(words and content.text)", "is_compared = bool(content.text)"),
    ),
    (
        *("forms-of-one-language", "a language has its own forms", *_FORMS),
        *('found = self._numpy.frombuffer(hashes, "<u8") ^ _SALTS[code]', _ONE_SALT),
    ),
    (
        *("forms-come-late", "a form is durable before its documents", *_BUILDER),
        *(
            "        self.forms.commit()\n        self.segments.commit()",
            "        self.segments.commit()\n        self.forms.commit()",
        ),
    ),
    (
        *("a-copy-stays-away", "another copy takes the place of a gone page", *_LEDGER),
        *("                self.mark(batch, key, page)", "                pass"),
    ),
    (
        *("an-archive-twice", "a file is read once", *_LEDGER),
        *('self.db.put(_SCANNED + pack(file), number + b"\\1", sync=True)', "pass"),
    ),
    (
        *("moved-pages-stay", "a page that moved for good is removed", *_SCAN),
        *("if status in _GONE or status in _MOVED:", "if status in _GONE:"),
    ),
    (
        *("old-robots-txt-counts", "the newest robots.txt counts", *_SCAN),
        *("is_old = known is not None and found.latest <= known.latest", "is_old = False"),
    ),
    (
        *("a-new-robots-txt-is-late", "pages in the index follow a robots.txt", *_SCAN),
        *("if is_other and (_refuses(new) or _refuses(before)):", "if False:"),
    ),
    (
        *("older-captures-win", "a document is the last capture", *_SCAN),
        *("elif found.latest <= page.latest:", "elif False:"),
    ),
    (
        *("rows-of-old", "a later capture says more than a row", *_SCAN),
        *("or page.is_gone or _seconds(page.latest[0]) > second:", "or page.is_gone:"),
    ),
    (
        *("gemini-pages-never-go", "a gone page of Gemini is removed"),
        *(f"{_SEARCH}/scan.py", ("tests/gemini/test_index.py",)),
        *('_GEMINI_GONE = frozenset({"31", "51", "52"})', "_GEMINI_GONE = frozenset()"),
    ),
    (
        *("any-row-is-gone", "rows of pages that are there remove nothing", *_GONE),
        *("        if row.absence.is_tombstone:", "        if True:"),
    ),
    (
        *("a-dead-host-stays", "pages of a host go that is dead for 30 days", *_GONE),
        *("if day < silent.start and answered & {*silent}:", "if False:"),
    ),
    (
        *("our-outage-removes-pages", "no page goes because this machine was offline", *_GONE),
        *(" and answered & {*silent}", ""),
    ),
    (
        *("prices-are-the-end", "a host that asks for payments is not dead", *_GONE),
        *("if day < silent.start and", "if"),
    ),
    (
        *("each-page-is-a-host", "a host counts once for a page", *_LINKS),
        *('return bytes((source[0] % _OWN,)) if is_own else b"\\0"', "return source[:1]"),
    ),
    (
        *("links-stay-for-ever", "a link that is gone takes its anchor", *_LINKS),
        *("                    batch.delete(at)", "                    pass"),
    ),
    (
        *("links-nobody-vouches-for", "nofollow does not count", *_DOCUMENTS),
        *("""if _NOT_VOUCHED.isdisjoint((link.rel or "").split()):""", "if True:"),
    ),
    (
        *("texts-without-bound", "a text is bounded", *_DOCUMENTS),
        *("found.text[:TEXT_MAX]", "found.text"),
    ),
    # --- queries ---
    (
        *("or-is-and", "OR finds pages with one of the words", *_QUERY),
        *("elif self._or is not None:", "elif False:"),
    ),
    (
        *("not-is-a-word", "NOT excludes", *_QUERY),
        *("""if self._not["word"] == "NOT":""", "if False:"),
    ),
    (
        *("a-bad-filter-is-silent", "the answer says what was left out", *_QUERY),
        *("self._notes.append(str(error))", "pass"),
    ),
    (
        *("queries-without-end", "a query has 500 characters", *_QUERY),
        *("        text = text[:LENGTH_MAX]", "        pass"),
    ),
    (
        *("prefixes-of-a-letter", "a prefix has two letters", *_QUERY),
        *("""len(word.rstrip("*")) >= PREFIX_MIN""", """word.rstrip("*")"""),
    ),
    (
        *("mebibytes-of-a-million", "Ki, Mi and Gi are powers of two", *_FILTERS),
        *("1024**power", "1000**power"),
    ),
    (
        *("until-ends-too-early", "a date includes its last day", *_FILTERS),
        *("""_days(high[1])[high[0] != "<"]""", "_days(high[1])[0]"),
    ),
    (
        *("excluded-filters-are-wanted", "- before a filter excludes", *_COMPILING),
        *("found.append((self._not, made))", "found.append((self._must, made))"),
    ),
    (
        *("site-is-a-host", "site: finds all hosts below", *_COMPILING),
        *("return self._any([exact, below])", "return exact"),
    ),
    (
        *("all-words-or-nothing", "pages with some of the words follow", *_SEARCHER),
        *("if matches.total < _FEW and len(query.clauses) > 1:", "if False:"),
    ),
    (
        *("few-pages-are-enough", "50 pages or all are asked for", *_NARROWED),
        *("if narrow.total >= max(ENOUGH, min(wanted, RANKED_MAX)):", "if narrow.total:"),
    ),
    (
        *("a-page-of-results-is-empty", "pages that are asked for are found", *_NARROWED),
        *("if narrow.total >= max(ENOUGH, min(wanted, RANKED_MAX)):", "if narrow.total >= ENOUGH:"),
    ),
    (
        *("some-words-in-titles-alone", "few pages of some words are not the answer", *_NARROWED),
        *("if some is None or some.count < ENOUGH:", "if some is None:"),
    ),
    (
        *("other-forms-alone", "a word is found as it was typed", *_NARROWING),
        *("own = [leaf for leaf in clause if leaf.is_own]", "own = [*clause]"),
    ),
    (
        *("a-rare-word-in-texts-alone", "a rare word may be in any field", *_NARROWING),
        *("or most.pages >= self._documents / 2 else None", "or True else None"),
    ),
    (
        *("cheap-queries-are-narrowed", "a query that costs little is whole", *_NARROWING),
        *("if sum(leaf.cost for leaf in leaves) <= self._bounds.whole:", "if False:"),
    ),
    (
        *("any-query-is-suggested", "another query must find clearly more", *_MEANT),
        *("least = max(1, _MORE * found)", "least = 1"),
    ),
    (
        *("some-words-first", "pages with all words are in front", *_SEARCHER),
        *("page.has_all = False", "pass"),
    ),
    (
        *("old-pages-first", "filters alone list the last pages first", *_SEARCHER),
        *('partial(searcher.search, compiled.every, order_by_field="fetched")', _UNORDERED),
    ),
    (
        *("a-commit-is-not-seen", "a query sees the last commit", *_OPENED),
        *("self._index.reload()", "pass"),
    ),
    (
        *("another-form-is-searched", "another form is refused, with the way out", *_OPENED),
        *("if state.form != FORM:", "if False:"),
    ),
    (
        *("any-file-is-shown", "no file outside of the JOBDIRs is read", *_TEXTS),
        *("""or ".." in name.parts""", "or False"),
    ),
    # --- ranks ---
    (
        *("farms-without-bound", "links of a farm are bounded", *_RANKING),
        *("min(log2(1.0 + page.linking_hosts), _LOG_MAX)", "float(page.linking_hosts)"),
    ),
    (
        *("titles-rank-nothing", "a title like the query raises a page", *_RANKING),
        *("TITLE_WEIGHT = 1.0", "TITLE_WEIGHT = 0.0"),
    ),
    (
        *("large-pages-of-tlgs", "links rank as in TLGS", *_RANKING),
        *("if over > 0 else 1.0", "if over > 10**9 else 1.0"),
    ),
    (
        *("hosts-rank-nothing", "centrality of its host raises a page", *_RANKING),
        *("HOST_WEIGHT = 0.08", "HOST_WEIGHT = 0.0"),
    ),
    (
        *("links-of-its-own-host", "a link within a host is none", *_AROUND),
        *("if _host(source) != host]", "]"),
    ),
    (
        *("words-are-turned", "nothing turns or hides a text", *_SNIPPETS),
        *("""_SPACE.sub(" ", _CONTROL.sub("", text)).strip()""", """_SPACE.sub(" ", text)"""),
    ),
    (
        *("the-first-place-is-shown", "a snippet has the most words", *_SNIPPETS),
        *("best, chosen = here, first", "pass"),
    ),
    (
        *("frequent-words-are-wrong", "a frequent word is no mistake", *_SPELLING),
        *("if here >= FREQUENT:", "if False:"),
    ),
    # --- what a browser gets ---
    (
        *("html-in-a-snippet", "titles and snippets are text", *_PAGE),
        *("if each.is_marked else escape(each.text)", "if each.is_marked else each.text"),
    ),
    (
        *("html-in-a-note", "notes are text", *_PAGE),
        *("{escape(note)}.</p>", "{note}.</p>"),
    ),
    (
        *("html-in-the-box", "a query is text", *_PAGE),
        *("""value="{escape(given.get("q", ""))}\"""", """value="{given.get("q", "")}\""""),
    ),
    (
        *("any-scheme-is-a-link", "only known schemes are links", *_ANSWERS),
        *("return url if scheme in _LINKED else", "return url if True else"),
    ),
    (
        *("scripts-may-run", "the page has no script", *_ROUTE),
        *("made.headers.update(HEADERS)", "pass"),
    ),
    (
        *("any-number-of-results", "an answer has 100 pages at most", *_ROUTE),
        *("or not 1 <= int(text) <= most:", "or False:"),
    ),
    (
        *("any-number-of-queries", "16 queries wait", *_ROUTE),
        *("if self._waiting >= WAITING_MAX:", "if False:"),
    ),
    (
        *("cut-files-are-read", "a file that was cut ends no process", *_CUT),
        *("            self._check_mapped()", "            pass"),
    ),
    # --- the graph ---
    (
        *("made-hosts-count", "made hosts raise no host of their domain", *_BUILD_RANKS),
        *("float(min(near, limits[0]))", "float(near)"),
    ),
    (
        *("no-title-of-an-entry", "titles of a feed's entries are anchors", *_FEEDS),
        *("if is_feed(answer.media):", "if False:"),
    ),
    (
        *("another-file-of-the-name", "files of two crawls are not mixed", *_BUILD),
        *("if link_files.LinkFile(path).size != warc.stat().st_size:", "if False:"),
    ),
    (
        *("a-folder-of-others", "no folder of others is written to", *_BUILD),
        *("if folder.is_dir() and not self._links.is_dir() and any(folder.iterdir()):", "if 0:"),
    ),
    (
        *("two-write-a-graph", "one process writes a graph", *_BUILD),
        *("self._lock = lock_directory(folder)", "self._lock = os.open(folder, os.O_RDONLY)"),
    ),
    (
        *("half-a-level-stays", "a level is of one run after a kill", *_BUILD),
        *("            old.rename(final)", "            pass"),
    ),
    (
        *("links-count-twice", "each pair of hosts counts once", *_PARTS),
        *("np.unique(np.concatenate(found))", "np.sort(np.concatenate(found))"),
    ),
    (
        *("links-to-itself", "a link of a host to itself does not count", *_PARTS),
        *("known.discard(source)", "pass"),
    ),
    (
        *("a-cut-file-is-read", "a damaged file of links is named", *_PARTS),
        *("or whole != self._links_begin + 8 * head.links:", "or False:"),
    ),
    (
        *("all-distances-are-one", "harmonic centrality is the sum of 1/d", *_HYPERBALL),
        *("np.maximum(sizes - self._sizes[grown], 0) / distance", "(sizes - self._sizes[grown])"),
    ),
    (
        *("small-graphs-are-estimated", "up to 4,096 hosts it is exact", *_HYPERBALL),
        *("if graph.size <= exact_max:", "if False:"),
    ),
    (
        *("chains-without-end", "HyperBall ends", *_HYPERBALL),
        *("if left is not None and (left := left - len(sources)) < 0:", "if False:"),
    ),
    (
        *("half-damping", "PageRank has damping 0.85", *_PAGERANK),
        *("DAMPING = 0.85", "DAMPING = 0.5"),
    ),
    (
        *("a-component-takes-all", "SALSA weighs components", *_SALSA),
        *("into[page] / size[part] * authorities[part] / len(into)", "into[page] / size[part]"),
    ),
    (
        *("any-neighbourhood", "a neighbourhood is bounded", *_SALSA),
        *("if len(links) > EDGES_MAX or len(pages) > EDGES_MAX:", "if False:"),
    ),
    (
        *("a-capsule-has-the-rank-of-the-web", "a capsule is a host of its own", *_RANKS),
        *("return [ported] if port == GEMINI_PORT else [ported, bare]", "return [ported, bare]"),
    ),
    (
        *("ranks-out-of-order", "a bad line of ranks is named", *_RANKS),
        *(" or sorted(lines) != lines:", ":"),
    ),
    (
        *("www-is-a-host", "hosts have no leading www", *_HOSTS),
        *("""if len(labels) > 2 and labels[0] == "www":""", "if False:"),
    ),
    (
        *("addresses-are-hosts", "addresses are no hosts", *_HOSTS),
        *("or _ADDRESS.fullmatch(name):", "or False:"),
    ),
    (
        *("links-within-a-domain", "links within a domain do not count", *_DOMAINS),
        *("kept = (sources != targets) & (sources", "kept = (sources"),
    ),
    (
        *("redirects-link-nowhere", "targets of redirects are links", *_REFERENCES),
        *("if status in _REDIRECTS:", "if False:"),
    ),
    (
        *("pages-of-links-alone", "a page has 2,000 links at most", *_REFERENCES),
        *("            left -= 1", "            pass"),
    ),
)
SEARCH_AND_GRAPH = tuple(
    Mutation(name, promise, path, old, new, (*tests, *_QUICK))
    for name, promise, path, tests, old, new in _TABLE
)
