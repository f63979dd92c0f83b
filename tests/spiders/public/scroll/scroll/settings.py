BOT_NAME = "scroll"

SPIDER_MODULES = ["scroll.spiders"]
NEWSPIDER_MODULE = "scroll.spiders"

ADDONS = {}

ROBOTSTXT_OBEY = True

CONCURRENT_REQUESTS_PER_DOMAIN = 1
DOWNLOAD_DELAY = 1

RETRY_TIMES = 1
DOWNLOADER_MIDDLEWARES = {"scroll.middlewares.ApiKeyMiddleware": 543}
SPIDER_MIDDLEWARES = {"scroll.middlewares.NumberingMiddleware": 543}

FEED_EXPORT_ENCODING = "utf-8"
