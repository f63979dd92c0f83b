BOT_NAME = "ranked"

SPIDER_MODULES = ["ranked.spiders"]
NEWSPIDER_MODULE = "ranked.spiders"

ADDONS = {}

ROBOTSTXT_OBEY = True

CONCURRENT_REQUESTS_PER_DOMAIN = 1
DOWNLOAD_DELAY = 1

ITEM_PIPELINES = {"ranked.pipelines.CoverPipeline": 300}

FEED_EXPORT_ENCODING = "utf-8"
