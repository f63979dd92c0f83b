"""URLs that a page names: links, headers and sitemaps, and a bound on the time of a scan."""
