BOT_NAME = "authors"

SPIDER_MODULES = ["authors.spiders"]
NEWSPIDER_MODULE = "authors.spiders"

ADDONS = {}

ROBOTSTXT_OBEY = True

CONCURRENT_REQUESTS_PER_DOMAIN = 1
DOWNLOAD_DELAY = 1

ITEM_PIPELINES = {
    "authors.pipelines.DuplicatesPipeline": 100,
    "authors.pipelines.SQLitePipeline": 300,
}
SQLITE_PATH = "out/rows.db"

FEED_EXPORT_ENCODING = "utf-8"
