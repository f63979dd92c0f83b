BOT_NAME = "bookshelf"

SPIDER_MODULES = ["bookshelf.spiders"]
NEWSPIDER_MODULE = "bookshelf.spiders"

ADDONS = {}

ROBOTSTXT_OBEY = True

CONCURRENT_REQUESTS_PER_DOMAIN = 1
DOWNLOAD_DELAY = 1

ITEM_PIPELINES = {
    "bookshelf.pipelines.PricePipeline": 200,
    "bookshelf.pipelines.PerSpiderWriter": 800,
}

FEED_EXPORT_ENCODING = "utf-8"
