-- Views for operators. PostgreSQL and SQLite take the same text.

-- The state of each URL in a crawl. Rows of files are counted from the newest one. The body is that
-- of the newest row with a digest; it holds since the last row with another one.
CREATE VIEW page AS
SELECT min(url_surtkey) AS url_surtkey, url, min(url_host_name) AS url_host_name,
    max(CASE WHEN place = 1 THEN url_host_registered_domain END) AS url_host_registered_domain,
    max(CASE WHEN place = 1 THEN status END) AS status,
    min(first_fetch) AS first_fetch, max(last_fetch) AS last_fetch,
    min(CASE WHEN digest = body AND place < coalesce(place_of_other, place + 1)
        THEN last_change END) AS last_change,
    CAST(sum(fetches) AS bigint) AS fetches,
    max(body) AS digest,
    max(CASE WHEN place = 1 THEN seed END) AS seed,
    max(CASE WHEN place = 1 THEN tag END) AS tag,
    max(CASE WHEN digest = body OR (body IS NULL AND place = 1) THEN title END) AS title,
    max(CASE WHEN place = coalesce(place_of_body, 1) THEN record_id END) AS record_id,
    max(CASE WHEN place = coalesce(place_of_body, 1) THEN warc_filename END) AS warc_filename,
    crawl
FROM (
    SELECT states.*,
        min(CASE WHEN digest = body THEN place END) OVER (PARTITION BY crawl, url)
            AS place_of_body,
        min(CASE WHEN digest <> body THEN place END) OVER (PARTITION BY crawl, url)
            AS place_of_other
    FROM (
        SELECT page_by_file.*,
            row_number() OVER (
                PARTITION BY crawl, url ORDER BY last_fetch DESC, warc_filename DESC
            ) AS place,
            first_value(digest) OVER (
                PARTITION BY crawl, url
                ORDER BY CASE WHEN digest IS NULL THEN 1 ELSE 0 END, last_fetch DESC,
                    warc_filename DESC
            ) AS body
        FROM page_by_file
    ) AS states
) AS bodies
GROUP BY crawl, url;

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

-- Fetches of each host in a crawl, by what came of them.
CREATE VIEW host AS
SELECT host, min(host_reversed) AS host_reversed, min(domain) AS domain, min(tld) AS tld,
    CAST(sum(fetches) AS bigint) AS fetches,
    CAST(sum(successes) AS bigint) AS successes,
    CAST(sum(redirects) AS bigint) AS redirects,
    CAST(sum(client_errors) AS bigint) AS client_errors,
    CAST(sum(server_errors) AS bigint) AS server_errors,
    CAST(sum(revisits) AS bigint) AS revisits,
    CAST(sum(bytes) AS bigint) AS bytes,
    min(first_fetch) AS first_fetch, max(last_fetch) AS last_fetch,
    crawl
FROM host_by_file
GROUP BY crawl, host;

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
