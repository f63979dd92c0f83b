"""The metrics of a crawl: the stats, histograms, and figures that are read at each scrape."""
