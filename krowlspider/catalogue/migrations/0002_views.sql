-- Views for operators. PostgreSQL and SQLite take the same text.

-- The latest state of each URL.
CREATE VIEW latest_page AS
SELECT url, url_host_name, url_host_registered_domain, status, first_seen AS first_fetch,
    last_fetch, latest_change AS last_change, all_fetches AS fetches, digest, seed, tag, title,
    record_id, warc_filename, crawl
FROM (
    SELECT page.*,
        row_number() OVER (PARTITION BY url ORDER BY last_fetch DESC, warc_filename DESC) AS place,
        min(first_fetch) OVER (PARTITION BY url) AS first_seen,
        max(last_change) OVER (PARTITION BY url) AS latest_change,
        CAST(sum(fetches) OVER (PARTITION BY url) AS bigint) AS all_fetches
    FROM page
) AS states
WHERE place = 1;

-- The latest robots.txt of each host.
CREATE VIEW latest_robots AS
SELECT url_host_name, url, fetch_time, fetch_status, bytes, groups, crawl_delay, disallows_all,
    sitemaps, record_id, warc_filename, crawl
FROM (
    SELECT robots.*,
        row_number() OVER (PARTITION BY url ORDER BY fetch_time DESC, record_id DESC) AS place
    FROM robots
) AS copies
WHERE place = 1;

-- Fetches of each host, by what came of them.
CREATE VIEW host_total AS
SELECT host, min(domain) AS domain,
    CAST(sum(fetches) AS bigint) AS fetches,
    CAST(sum(successes) AS bigint) AS successes,
    CAST(sum(redirects) AS bigint) AS redirects,
    CAST(sum(client_errors) AS bigint) AS client_errors,
    CAST(sum(server_errors) AS bigint) AS server_errors,
    CAST(sum(revisits) AS bigint) AS revisits,
    CAST(sum(bytes) AS bigint) AS bytes,
    min(first_fetch) AS first_fetch, max(last_fetch) AS last_fetch
FROM host
GROUP BY host;

-- Answers of 400 and above, by host and status.
CREATE VIEW host_error AS
SELECT url_host_name, fetch_status, count(*) AS fetches, min(fetch_time) AS first_fetch,
    max(fetch_time) AS last_fetch, min(url) AS example
FROM "fetch"
WHERE fetch_status >= 400
GROUP BY url_host_name, fetch_status;

-- How long hosts took to answer, in milliseconds.
CREATE VIEW host_speed AS
SELECT url_host_name, count(*) AS fetches, avg(krowl_fetch_milliseconds) AS mean_milliseconds,
    max(krowl_fetch_milliseconds) AS max_milliseconds, max(krowl_delay) AS max_delay
FROM "fetch"
WHERE krowl_fetch_milliseconds IS NOT NULL
GROUP BY url_host_name;

-- What each seed has led to.
CREATE VIEW seed_total AS
SELECT krowl_seed AS seed, min(krowl_tag) AS tag, count(*) AS fetches,
    count(*) FILTER (WHERE fetch_status = 200) AS successes,
    count(DISTINCT url_host_name) AS hosts, count(DISTINCT url) AS urls,
    CAST(sum(warc_record_length) AS bigint) AS bytes, max(fetch_time) AS last_fetch
FROM "fetch"
WHERE krowl_seed IS NOT NULL
GROUP BY krowl_seed;

-- Captures of each crawl, by part and status.
CREATE VIEW status_total AS
SELECT crawl, subset, fetch_status, count(*) AS fetches,
    CAST(sum(warc_record_length) AS bigint) AS bytes
FROM "fetch"
GROUP BY crawl, subset, fetch_status;
