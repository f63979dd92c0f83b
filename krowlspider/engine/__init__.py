"""Scrapy's seams: scheduler, downloader, runner, download handler, dupefilter.

Each module here serves Scrapy's engine. The decisions and the work are in `krowlspider.job` and
the packages below it. `control` answers questions about a running crawl, `steering` changes it.
"""
