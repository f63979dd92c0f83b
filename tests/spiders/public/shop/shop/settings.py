BOT_NAME = "shop"

SPIDER_MODULES = ["shop.spiders"]
NEWSPIDER_MODULE = "shop.spiders"

ADDONS = {}

ROBOTSTXT_OBEY = True

CONCURRENT_REQUESTS_PER_DOMAIN = 1
DOWNLOAD_DELAY = 1

SPIDER_MIDDLEWARES = {"scrapy.spidermiddlewares.referer.RefererMiddleware": 700}

FEED_EXPORT_ENCODING = "utf-8"
