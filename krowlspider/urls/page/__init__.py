"""Links, requisites, sitemaps and text of a page, and a bound on the time of a scan."""
