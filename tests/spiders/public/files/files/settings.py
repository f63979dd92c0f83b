BOT_NAME = "files"

SPIDER_MODULES = ["files.spiders"]
NEWSPIDER_MODULE = "files.spiders"

ADDONS = {}

ROBOTSTXT_OBEY = True

CONCURRENT_REQUESTS_PER_DOMAIN = 1
DOWNLOAD_DELAY = 1

ITEM_PIPELINES = {"files.pipelines.NamedFilesPipeline": 1}
FILES_STORE = "out/media"
MEDIA_ALLOW_REDIRECTS = True

FEED_EXPORT_ENCODING = "utf-8"
