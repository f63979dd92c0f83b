-- The tables of a catalogue. PostgreSQL and SQLite take the same text; columns.py has the columns.

-- The WARC files whose rows are here, with the names of the tables that have them: what is named
-- here is not written again.
CREATE TABLE file (
    name text NOT NULL PRIMARY KEY,
    tables text NOT NULL,
    rows bigint NOT NULL,
    written_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP
);

-- One row a capture: response or revisit of HTTP.
CREATE TABLE "fetch" (
    url_surtkey text NOT NULL,
    url text NOT NULL,
    url_host_name text NOT NULL,
    url_host_tld text,
    url_host_2nd_last_part text,
    url_host_3rd_last_part text,
    url_host_4th_last_part text,
    url_host_5th_last_part text,
    url_host_registry_suffix text,
    url_host_registered_domain text,
    url_host_private_suffix text,
    url_host_private_domain text,
    url_host_name_reversed text,
    url_protocol text NOT NULL,
    url_port bigint,
    url_path text NOT NULL,
    url_query text,
    fetch_time timestamptz NOT NULL,
    fetch_status smallint NOT NULL,
    fetch_redirect text,
    content_digest text,
    content_mime_type text,
    content_mime_detected text,
    content_charset text,
    content_languages text,
    content_truncated text,
    warc_filename text NOT NULL,
    warc_record_offset bigint NOT NULL,
    warc_record_length bigint NOT NULL,
    warc_segment text NOT NULL,
    krowl_record_id text NOT NULL,
    krowl_title text,
    krowl_description text,
    krowl_og text,
    krowl_jsonld_types text,
    krowl_hreflang text,
    krowl_language text,
    krowl_text_digest text,
    krowl_fetch_milliseconds double precision,
    krowl_delay double precision,
    krowl_hops text,
    krowl_via text,
    krowl_seed text,
    krowl_tag text,
    krowl_revisit text,
    crawl text NOT NULL,
    subset text NOT NULL,
    PRIMARY KEY (krowl_record_id)
);

-- One row a host and WARC file: counts add up.
CREATE TABLE host_by_file (
    host text NOT NULL,
    host_reversed text,
    domain text,
    tld text,
    fetches bigint NOT NULL,
    successes bigint NOT NULL,
    redirects bigint NOT NULL,
    client_errors bigint NOT NULL,
    server_errors bigint NOT NULL,
    revisits bigint NOT NULL,
    bytes bigint NOT NULL,
    first_fetch timestamptz NOT NULL,
    last_fetch timestamptz NOT NULL,
    warc_filename text NOT NULL,
    crawl text NOT NULL,
    PRIMARY KEY (host, warc_filename)
);

-- One row a robots.txt that was fetched.
CREATE TABLE robots (
    url_surtkey text NOT NULL,
    url text NOT NULL,
    url_host_name text NOT NULL,
    url_host_registered_domain text,
    fetch_time timestamptz NOT NULL,
    fetch_status smallint NOT NULL,
    digest text,
    bytes bigint,
    groups bigint,
    crawl_delay double precision,
    disallows_all boolean,
    sitemaps text,
    record_id text NOT NULL,
    warc_filename text NOT NULL,
    crawl text NOT NULL,
    PRIMARY KEY (record_id)
);

-- One row a sitemap that was fetched.
CREATE TABLE sitemap (
    url_surtkey text NOT NULL,
    url text NOT NULL,
    url_host_name text NOT NULL,
    url_host_registered_domain text,
    fetch_time timestamptz NOT NULL,
    fetch_status smallint NOT NULL,
    kind text,
    urls bigint,
    newest_lastmod text,
    record_id text NOT NULL,
    warc_filename text NOT NULL,
    crawl text NOT NULL,
    PRIMARY KEY (record_id)
);

-- One row a link of a page.
CREATE TABLE link (
    url_surtkey text NOT NULL,
    source_url text NOT NULL,
    target_url text NOT NULL,
    target_host_name text,
    text text,
    rel text,
    number bigint NOT NULL,
    record_id text NOT NULL,
    warc_filename text NOT NULL,
    crawl text NOT NULL,
    PRIMARY KEY (record_id, number)
);

-- One row a change of a page, as `scrapy changes` prints it.
CREATE TABLE change (
    url_surtkey text NOT NULL,
    url text NOT NULL,
    url_host_name text NOT NULL,
    media_type text,
    similarity double precision,
    text_changed boolean,
    truncated boolean,
    fetched_between bigint NOT NULL,
    unchanged_until timestamptz NOT NULL,
    before_time timestamptz NOT NULL,
    before_status smallint NOT NULL,
    before_digest text,
    before_filename text NOT NULL,
    before_offset bigint NOT NULL,
    fetch_time timestamptz NOT NULL,
    fetch_status smallint NOT NULL,
    digest text,
    warc_record_offset bigint NOT NULL,
    record_id text NOT NULL,
    warc_filename text NOT NULL,
    crawl text NOT NULL,
    PRIMARY KEY (record_id)
);

-- One row a URL and WARC file: the state that the last fetch in the file found.
CREATE TABLE page_by_file (
    url_surtkey text NOT NULL,
    url text NOT NULL,
    url_host_name text NOT NULL,
    url_host_registered_domain text,
    status smallint NOT NULL,
    first_fetch timestamptz NOT NULL,
    last_fetch timestamptz NOT NULL,
    last_change timestamptz,
    fetches bigint NOT NULL,
    digest text,
    seed text,
    tag text,
    title text,
    record_id text NOT NULL,
    warc_filename text NOT NULL,
    crawl text NOT NULL,
    PRIMARY KEY (url, warc_filename)
);

-- What holds for single sites, written by people: `scrapy krowl policies` makes sheets of it. A
-- column has the name of a key of a sheet; columns of further keys may be added. NULL: the setting
-- holds.
CREATE TABLE policy (
    name text NOT NULL PRIMARY KEY,
    match text NOT NULL,
    delay double precision,
    concurrency bigint,
    depth bigint,
    include text,
    exclude text,
    scope text,
    max_pages bigint,
    max_bytes bigint,
    max_seconds double precision,
    recrawl_min double precision,
    recrawl_max double precision,
    weight double precision,
    priority bigint,
    user_agent_suffix text
);

CREATE INDEX fetch_by_url ON "fetch" (url);
CREATE INDEX fetch_by_host ON "fetch" (url_host_name, fetch_time);
CREATE INDEX change_by_url ON change (url);
