BOT_NAME = "redisqueue"

SPIDER_MODULES = ["redisqueue.spiders"]
NEWSPIDER_MODULE = "redisqueue.spiders"

ADDONS = {}

ROBOTSTXT_OBEY = True

CONCURRENT_REQUESTS_PER_DOMAIN = 1
DOWNLOAD_DELAY = 1

SCHEDULER = "scrapy_redis.scheduler.Scheduler"
SCHEDULER_PERSIST = True
DUPEFILTER_CLASS = "scrapy_redis.dupefilter.RFPDupeFilter"
ITEM_PIPELINES = {
    "redisqueue.pipelines.NumberPipeline": 300,
    "scrapy_redis.pipelines.RedisPipeline": 400,
}
# Seconds without a start URL until the crawl ends.
MAX_IDLE_TIME_BEFORE_CLOSE = 3

FEED_EXPORT_ENCODING = "utf-8"
