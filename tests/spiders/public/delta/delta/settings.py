BOT_NAME = "delta"

SPIDER_MODULES = ["delta.spiders"]
NEWSPIDER_MODULE = "delta.spiders"

ADDONS = {}

ROBOTSTXT_OBEY = True

CONCURRENT_REQUESTS_PER_DOMAIN = 1
DOWNLOAD_DELAY = 1

DOWNLOADER_MIDDLEWARES = {
    "scrapy.downloadermiddlewares.useragent.UserAgentMiddleware": None,
    "delta.middlewares.RandomUserAgentMiddleware": 400,
}
SPIDER_MIDDLEWARES = {"delta.middlewares.DeltaMiddleware": 100}
DELTA_FILE = "out/delta.db"
USER_AGENT_LIST = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/140.0.0.0 Safari/537.36",
]

FEED_EXPORT_ENCODING = "utf-8"
