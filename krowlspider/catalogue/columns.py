"""The tables of a catalogue: names and types of their columns. Pure.

Types are "text", "smallint", "integer", "bigint", "double", "boolean" and "timestamp" (UTC, in
microseconds). `PARTITIONS` names the columns whose values are in the path of a Parquet file; rows
have them too, behind the columns of `TABLES`.
"""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """A column; ``required`` ones are never null."""

    name: str
    type: str
    required: bool = False


# What crawl a row is of, and for captures which of SUBSETS.
CRAWL, SUBSET = Column("crawl", "text", True), Column("subset", "text", True)
# Status 200 to 299; /robots.txt with any status; all else: redirects, 304, 404 ...
SUBSETS = ("warc", "robotstxt", "crawldiagnostics")

# Those of cc-index-schema-flat.json of commoncrawl/cc-index-table, in its order.
COMMON_CRAWL = (
    Column("url_surtkey", "text", True),
    Column("url", "text", True),
    Column("url_host_name", "text", True),
    Column("url_host_tld", "text"),
    Column("url_host_2nd_last_part", "text"),
    Column("url_host_3rd_last_part", "text"),
    Column("url_host_4th_last_part", "text"),
    Column("url_host_5th_last_part", "text"),
    Column("url_host_registry_suffix", "text"),
    Column("url_host_registered_domain", "text"),
    Column("url_host_private_suffix", "text"),
    Column("url_host_private_domain", "text"),
    Column("url_host_name_reversed", "text"),
    Column("url_protocol", "text", True),
    Column("url_port", "integer"),
    Column("url_path", "text", True),
    Column("url_query", "text"),
    Column("fetch_time", "timestamp", True),
    Column("fetch_status", "smallint", True),
    Column("fetch_redirect", "text"),
    Column("content_digest", "text"),
    Column("content_mime_type", "text"),
    Column("content_mime_detected", "text"),
    Column("content_charset", "text"),
    Column("content_languages", "text"),
    Column("content_truncated", "text"),
    Column("warc_filename", "text", True),
    Column("warc_record_offset", "integer", True),
    Column("warc_record_length", "integer", True),
    Column("warc_segment", "text", True),
)
_OURS = (
    # The WARC-Record-ID without angle brackets, "urn:uuid:...".
    Column("krowl_record_id", "text", True),
    Column("krowl_title", "text"),
    Column("krowl_description", "text"),
    # JSON: pairs of property and content.
    Column("krowl_og", "text"),
    # JSON: names of types.
    Column("krowl_jsonld_types", "text"),
    # JSON: pairs of language and URL.
    Column("krowl_hreflang", "text"),
    Column("krowl_language", "text"),
    Column("krowl_text_digest", "text"),
    Column("krowl_fetch_milliseconds", "double"),
    Column("krowl_delay", "double"),
    Column("krowl_hops", "text"),
    Column("krowl_via", "text"),
    Column("krowl_seed", "text"),
    Column("krowl_tag", "text"),
    # The profile of a revisit: "identical-payload-digest" or "server-not-modified".
    Column("krowl_revisit", "text"),
)
_PLACE = (
    Column("url_surtkey", "text", True),
    Column("url", "text", True),
    Column("url_host_name", "text", True),
    Column("url_host_registered_domain", "text"),
)
_CAPTURE = (
    Column("fetch_time", "timestamp", True),
    Column("fetch_status", "smallint", True),
)
_RECORD = (
    # The key, with the name of the file where a record has several rows.
    Column("record_id", "text", True),
    Column("warc_filename", "text", True),
)

TABLES: dict[str, tuple[Column, ...]] = {
    # One row a response or revisit of HTTP. The key is krowl_record_id.
    "fetch": COMMON_CRAWL + _OURS,
    # One row a host (with its port, if it is not the scheme's) and WARC file: counts add up. The
    # key is host and warc_filename. The view `host` of databases and `scrapy sql` adds them up.
    "host_by_file": (
        Column("host", "text", True),
        Column("host_reversed", "text"),
        Column("domain", "text"),
        Column("tld", "text"),
        Column("fetches", "integer", True),
        Column("successes", "integer", True),
        Column("redirects", "integer", True),
        Column("client_errors", "integer", True),
        Column("server_errors", "integer", True),
        Column("revisits", "integer", True),
        # Of gzip members in the file.
        Column("bytes", "bigint", True),
        Column("first_fetch", "timestamp", True),
        Column("last_fetch", "timestamp", True),
        Column("warc_filename", "text", True),
    ),
    # One row a robots.txt that was fetched. The key is record_id.
    "robots": (
        *_PLACE,
        *_CAPTURE,
        Column("digest", "text"),
        Column("bytes", "integer"),
        Column("groups", "integer"),
        # Of the group "*": seconds, and whether it forbids "/".
        Column("crawl_delay", "double"),
        Column("disallows_all", "boolean"),
        # JSON: a list of URLs.
        Column("sitemaps", "text"),
        *_RECORD,
    ),
    # One row a sitemap that was fetched. The key is record_id.
    "sitemap": (
        *_PLACE,
        *_CAPTURE,
        # "urlset" or "index".
        Column("kind", "text"),
        Column("urls", "integer"),
        Column("newest_lastmod", "text"),
        *_RECORD,
    ),
    # One row a link of a page. The key is record_id and number.
    "link": (
        Column("url_surtkey", "text", True),
        Column("source_url", "text", True),
        Column("target_url", "text", True),
        Column("target_host_name", "text"),
        Column("text", "text"),
        Column("rel", "text"),
        Column("number", "integer", True),
        *_RECORD,
    ),
    # One row a change of a page, as `scrapy changes` prints it; fetch_time, fetch_status, digest
    # and the record are those of "after". The key is record_id.
    "change": (
        Column("url_surtkey", "text", True),
        Column("url", "text", True),
        Column("url_host_name", "text", True),
        Column("media_type", "text"),
        # These are null if a body is not in the folder.
        Column("similarity", "double"),
        Column("text_changed", "boolean"),
        Column("truncated", "boolean"),
        Column("fetched_between", "integer", True),
        Column("unchanged_until", "timestamp", True),
        Column("before_time", "timestamp", True),
        Column("before_status", "smallint", True),
        Column("before_digest", "text"),
        Column("before_filename", "text", True),
        Column("before_offset", "bigint", True),
        Column("fetch_time", "timestamp", True),
        Column("fetch_status", "smallint", True),
        Column("digest", "text"),
        Column("warc_record_offset", "bigint", True),
        *_RECORD,
    ),
    # One row a URL and WARC file: the state that the last fetch of the file found. The view `page`
    # makes one row a URL of them. The key is url and warc_filename.
    "page_by_file": (
        *_PLACE,
        Column("status", "smallint", True),
        Column("first_fetch", "timestamp", True),
        Column("last_fetch", "timestamp", True),
        # When the file first had the body that it had last; null without a body in it.
        Column("last_change", "timestamp"),
        Column("fetches", "integer", True),
        Column("digest", "text"),
        Column("seed", "text"),
        Column("tag", "text"),
        Column("title", "text"),
        # That of the latest response with status 200; of the last fetch without one.
        *_RECORD,
    ),
}
# The tables that are made unless others are asked for.
USUAL = frozenset(TABLES) - {"link"}
# What is in the path of a Parquet file, and in each row besides.
PARTITIONS: dict[str, tuple[Column, ...]] = {
    name: (CRAWL, SUBSET) if name == "fetch" else (CRAWL,) for name in TABLES
}
