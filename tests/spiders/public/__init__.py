"""A Scrapy project with spiders as public projects have them; `tests/spiders/test_public.py` runs
them on Scrapy's own settings and on this project's."""

from os import environ

# Of the site, by `tests.support.publicsite`.
SITE = environ.get("SITE", "http://127.0.0.1")
