"""The web server of a crawl of several processes: a page and the metrics of all."""
