"""Mutations of what strangers' bytes mean, of the archive, and of the corpus."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_URLS = "krowlspider/urls"
_POLITENESS = "krowlspider/politeness"
_ARCHIVE = "krowlspider/archive"
_CORPUS = "krowlspider/corpus"

READING_AND_ARCHIVE = (
    # --- URLs and pages ---
    Mutation(
        "order-of-parameters-counts",
        "the identity of a URL ignores the order of parameters",
        "krowlspider/urls/canonical.py",
        '"&".join(sorted(kept[1:].split("&"), key=_name))',
        "kept[1:]",
        ("tests/urls/test_canonical.py",),
    ),
    Mutation(
        "declaration-before-the-header",
        "the header's encoding counts before that of the document",
        "krowlspider/urls/encoding.py",
        "mark_of(body)[1] or charset or _declared(body)",
        "mark_of(body)[1] or _declared(body) or charset",
        ("tests/urls/test_encoding.py",),
    ),
    Mutation(
        "declaration-far-behind-the-head",
        "a meta element counts near the start, and further behind only in the head",
        "krowlspider/urls/encoding.py",
        "end = _ANYWHERE",
        "end = _IN_HEAD",
        ("tests/urls/test_encoding.py",),
    ),
    Mutation(
        "excluded-name-not-heeded",
        "a name in the list of exclusions excludes all its URLs",
        "krowlspider/urls/seeds.py",
        "return bool(self.names.rules) and self.names.rule_of(host_of(url)) is not None",
        "return False",
        ("tests/urls/test_blocks.py",),
    ),
    Mutation(
        "sitemap-of-any-length",
        "9: a sitemap has at most 50,000 URLs",
        f"{_URLS}/page/sitemap.py",
        "if self.found + self.invalid >= URLS_MAX:",
        "if self.found + self.invalid >= 2 * URLS_MAX:",
        ("tests/urls/page/test_sitemap.py",),
    ),
    # --- politeness ---
    Mutation(
        "outage-of-one-owner",
        "failures of one owner's hosts are no outage",
        f"{_POLITENESS}/outage.py",
        "return len({failures.domain for failures in self._evidence.values()}) >= HOSTS",
        "return True",
        ("tests/politeness/test_outage.py",),
    ),
    Mutation(
        "hosts-of-one-block-as-many-owners",
        "failures of one address block are no outage",
        f"{_POLITENESS}/outage.py",
        "note(self._evidence, block or domain or host, failures)",
        "note(self._evidence, domain or host, failures)",
        ("tests/politeness/test_outage.py",),
    ),
    Mutation(
        "strikes-of-before-an-answer-forgiven",
        "an outage forgives the failures since the last answer",
        f"{_POLITENESS}/outage.py",
        "self._failed.clear()\n        self._evidence.clear()",
        "self._evidence.clear()",
        ("tests/politeness/test_outage.py",),
    ),
    Mutation(
        "shortest-retry-after",
        "of several Retry-After headers the longest counts",
        f"{_POLITENESS}/delay.py",
        "return max((wait for wait in asked if wait is not None), default=None)",
        "return min((wait for wait in asked if wait is not None), default=None)",
        ("tests/politeness/test_delay.py",),
    ),
    # --- the archive ---
    Mutation(
        "half-a-record-left-on-a-full-disk",
        "an open WARC file ends with a whole record after a failed write",
        "krowlspider/archive/write/series.py",
        "except OSError:\n            self._cut_back()\n            raise\n        self.size",
        "except OSError:\n            raise\n        self.size",
        ("tests/archive/write/test_writer.py", "-k", "full_disk"),
    ),
    Mutation(
        "revisit-of-a-truncated-payload",
        "a truncated payload has no revisit",
        "krowlspider/archive/write/composer.py",
        "and not capture.truncated",
        "and capture.truncated is not None",
        ("tests/archive/write/test_composer.py",),
    ),
    Mutation(
        "payloads-remembered-without-end",
        "9: a payload index has a bound",
        "krowlspider/archive/write/composer.py",
        "room = self._half - self._generations[0].count if",
        "room = 2 * self._half - self._generations[0].count if",
        ("tests/archive/payloads/test_payload_index.py", "-k", "dict"),
    ),
    Mutation(
        "latest-payload-not-found",
        "a payload index finds the record that was added last",
        "krowlspider/archive/write/composer.py",
        "self._added[digest] = original\n\n    def sync",
        "self._added.setdefault(digest, original)\n\n    def sync",
        ("tests/archive/payloads/test_payload_index.py", "-k", "dict"),
    ),
    Mutation(
        "mended-file-named-before-it-is-synced",
        "a mended file has its final name after its content is durable",
        f"{_ARCHIVE}/tools/mend.py",
        "            os.fsync(stream.fileno())\n",
        "            pass\n",
        ("tests/archive/tools/test_mend.py",),
    ),
    # --- the corpus ---
    Mutation(
        "reservation-of-the-site-beats-that-of-the-page",
        "a page overrides the reservation of its site",
        "krowlspider/corpus/optouts.py",
        "found.discard(TDM)",
        "pass",
        ("tests/corpus/test_opt_outs.py", "-k", "signals_of_a_page"),
    ),
    Mutation(
        "repeated-lines-kept",
        "lines that a host repeats are taken out of its pages",
        f"{_CORPUS}/worker.py",
        "found.text = without(found.text, repeated)",
        "pass",
        ("tests/corpus/test_repetition.py",),
    ),
    Mutation(
        "masked-after-the-fingerprints",
        "pages that differ only in what is masked are duplicates",
        f"{_CORPUS}/worker.py",
        "masked = mask(found, rules.masked) if rules.masked else {}\n"
        "        marks = fingerprints(\n"
        "            found.text, minhash=rules.similarity is not None, numbers=rules.numbers\n"
        "        )",
        "marks = fingerprints(\n"
        "            found.text, minhash=rules.similarity is not None, numbers=rules.numbers\n"
        "        )\n"
        "        masked = mask(found, rules.masked) if rules.masked else {}",
        ("tests/corpus/test_personal_data.py",),
    ),
    Mutation(
        "false-label-believed",
        "UTF-8 is known where another encoding is declared",
        "krowlspider/corpus/text/document.py",
        "if _LOST.search(text) or (len(text) == len(body) and _is_utf8(body)):",
        "if _LOST.search(text):",
        ("tests/corpus/test_encodings.py",),
    ),
    # --- changes ---
    Mutation(
        "a-304-is-a-change",
        "a 304 that was asked for finds the version again",
        "krowlspider/changes/pairs.py",
        "    if _is_304(line):\n        return True\n",
        "",
        ("tests/changes/test_pairs.py",),
    ),
    Mutation(
        "an-empty-200-is-a-change",
        "a 200 without payload is passed over, as it may be the answer to HEAD",
        "krowlspider/changes/pairs.py",
        " and not line.is_bare",
        "",
        ("tests/changes/test_pairs.py",),
    ),
    Mutation(
        "another-compression-is-a-change",
        "two bodies that differ only in their compression are no change",
        "krowlspider/changes/pairs.py",
        "before.content is not None and before.content == after.content",
        "before.content is not None and before is after",
        ("tests/commands/test_changes.py",),
    ),
    Mutation(
        "an-open-file-counts-twice",
        "a file that is finished while it is indexed counts once",
        "krowlspider/programs/changes.py",
        "+ INDEX not in finished",
        "+ INDEX",
        ("tests/commands/test_changes.py",),
    ),
)
