from exports.items import Writer

BOT_NAME = "exports"

SPIDER_MODULES = ["exports.spiders"]
NEWSPIDER_MODULE = "exports.spiders"

ADDONS = {}

ROBOTSTXT_OBEY = True

CONCURRENT_REQUESTS_PER_DOMAIN = 1
DOWNLOAD_DELAY = 1

FEED_URI_PARAMS = "exports.feeds.uri_params"
FEED_EXPORT_BATCH_ITEM_COUNT = 8
FEEDS = {
    "out/%(day)s/quotes-%(batch_id)03d.jsonl": {
        "format": "jsonlines",
        "item_classes": ["exports.items.Quote"],
    },
    "out/%(day)s/writers.csv.gz": {
        "format": "csv",
        "item_classes": [Writer],
        "fields": {"name": "Name", "born": "Born"},
        "batch_item_count": 0,
        "postprocessing": ["scrapy.extensions.postprocessing.GzipPlugin"],
        "gzip_compresslevel": 9,
        "gzip_mtime": 0,
    },
    "out/items.jsonl": {"format": "jsonlines", "batch_item_count": 0},
    "out/of-ada.xml": {
        "format": "xml",
        "item_filter": "exports.feeds.OfAda",
        "batch_item_count": 0,
        "item_export_kwargs": {"root_element": "quotes", "item_element": "quote"},
    },
}

FEED_EXPORT_ENCODING = "utf-8"
