BOT_NAME = "proxied"

SPIDER_MODULES = ["proxied.spiders"]
NEWSPIDER_MODULE = "proxied.spiders"

ADDONS = {}

ROBOTSTXT_OBEY = True

CONCURRENT_REQUESTS_PER_DOMAIN = 1
DOWNLOAD_DELAY = 1

DOWNLOADER_MIDDLEWARES = {"proxied.middlewares.RotatingProxyMiddleware": 610}

FEED_EXPORT_ENCODING = "utf-8"
