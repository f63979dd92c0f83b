"""What the pages of TLGS about its index and its search say, with the test of each sentence.

They are tlgs/server/templates/doc_indexing.csp and doc_search.csp. Where this project differs,
docs/decisions/gemini.md says why.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from krowlspider.gemini import robots
from krowlspider.gemini.robots import INDEXER
from tests.gemini.answers import page, redirect
from tests.gemini.capsules import Capsules, Paths
from tests.support.crawling import ROOT, Crawl
from tests.support.tables import table

if TYPE_CHECKING:
    from pathlib import Path

# By file below tests/: a test, and the sentences that it is of.
TESTS = {
    "whole_crawls/test_gemini.py": {
        "test_links_lead_from_gemini_to_the_web_and_back": "links to other protocols are ignored",
        "test_each_status_means_what_it_says": "links are of text/gemini; 53 ends the page",
        "test_a_tree_of_capsules_is_crawled": "robots.txt comes before any page",
    },
    "search/test_documents.py": {
        "test_texts_with_marks_are_documents": "markdown and reStructuredText are indexed",
        "test_plaintext_is_plain_text": "plain text and plaintext are indexed",
        "test_a_text_is_bounded": "large pages are not indexed",
    },
    "gemini/test_ancestor_urls.py": {
        "test_prefixes_are_excluded": "capsules may be excluded",
    },
    "gemini/test_mirrors.py": {
        "test_mirrors_have_a_kind": "mirrors are excluded",
    },
    "gemini/test_ascii_art.py": {
        "test_pictures_of_the_ancestor_are_pictures": "ASCII art is left out",
    },
    "gemini/test_gemtext.py": {
        "test_separators_are_no_text": "separators are left out",
    },
    "gemini/test_robots.py": {
        "test_groups_of_all_activities_hold_together": "the groups of the indexer and of all hold",
        "test_prefixes_match_with_wildcards": "* and $ are special",
        "test_allow_and_other_lines_are_ignored": "Allow and Crawl-delay are ignored",
    },
    "search/test_builder.py": {
        "test_a_capsule_refuses_indexers_in_its_robots_txt": "the index follows robots.txt",
        "test_a_capsule_page_that_fails_for_a_month_is_gone": "pages go after a month of failures",
        "test_one_copy_is_in_the_index": "copies are found once",
    },
    "gemini/test_redirects.py": {
        "test_gemini_has_five_redirects_in_a_row": "five redirects are followed",
        "test_redirects_cross_with_the_setting_alone": "a redirect out of Gemini is none",
    },
    "gemini/test_ancestor_documents.py": {
        "test_a_redirect_to_a_forbidden_page_is_not_followed": "no redirect to forbidden pages",
    },
    "search/test_query.py": {
        "test_filters_of_tlgs_mean_the_same": "filters by content_type, domain, size and intitle",
        "test_units_of_tlgs_are_known": "K, M, G, Ki, Mi and Gi are units",
        "test_query_of_filters_alone_is_one": "a filter alone is no query",
        "test_excluded_phrases_and_filters": "NOT negates a filter",
    },
    "search/test_neighbourhood.py": {
        "test_page_with_most_links_around_the_results_is_first": "SALSA and HITS rank the results",
    },
    "commands/test_search.py": {
        "test_answers_in_a_terminal_and_in_json": "verbose mode explains the ranks",
    },
}


@table("file", TESTS)
def test_each_sentence_has_its_test(file: str) -> None:
    tree = ast.parse((ROOT / "tests" / file).read_text())
    defined = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
    defined |= {each.name for each in tree.body if isinstance(each, ast.AsyncFunctionDef)}
    assert TESTS[file].keys() <= defined


def test_a_redirect_to_a_forbidden_page_is_not_followed(tmp_path: Path) -> None:
    """It counts as a page that robots.txt forbids."""
    web = {
        "/robots.txt": page("User-agent: indexer\nDisallow: /closed\n", kind="text/plain"),
        "/": page("=> /moved\n"),
        "/moved": redirect("/closed/door"),
        "/closed/door": page("# Closed\n"),
    }
    settings = {"KROWL_GEMINI": "1", "KROWL_GEMINI_DELAY_MIN": "0.05"}
    with Capsules(Paths(web)) as capsules:
        seed = capsules.url()
        crawl = Crawl(tmp_path / "job", arguments={"seeds": seed}, settings=settings).run()
        asked = [each.url.removeprefix(seed) for each in capsules.visits]
    assert asked == ["robots.txt", "", "moved"]
    assert [item["url"] for item in crawl.items] == [seed]
    assert crawl.stats["krowl/frontier/dropped_count/robots"] == 1


def test_a_robots_txt_may_have_a_mark_of_its_coding() -> None:
    """TLGS asks for none. It is no part of the first line here."""
    body = b"\xef\xbb\xbfUser-agent: *\nDisallow: /x\n"
    assert robots.read(body, (INDEXER,)) == robots.read(body[3:], (INDEXER,)) == []
    assert robots.read(body, (INDEXER, "*")) == ["/x"]
