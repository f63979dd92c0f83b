"""The settings that ``scrapy startproject`` writes, without its delay of a second."""

BOT_NAME = "public"

SPIDER_MODULES = ["tests.spiders.public.spiders"]
NEWSPIDER_MODULE = "tests.spiders.public.spiders"

ROBOTSTXT_OBEY = True
CONCURRENT_REQUESTS_PER_DOMAIN = 1
FEED_EXPORT_ENCODING = "utf-8"
