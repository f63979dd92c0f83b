BOT_NAME = "stages"

SPIDER_MODULES = ["stages.spiders"]
NEWSPIDER_MODULE = "stages.spiders"

ROBOTSTXT_OBEY = True

CONCURRENT_REQUESTS_PER_DOMAIN = 1
DOWNLOAD_DELAY = 1

FEED_EXPORT_ENCODING = "utf-8"
ITEM_PIPELINES = {"stages.pipelines.StagePipeline": 300}
STAGE = "base"
