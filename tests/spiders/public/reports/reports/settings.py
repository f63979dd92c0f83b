BOT_NAME = "reports"

SPIDER_MODULES = ["reports.spiders"]
NEWSPIDER_MODULE = "reports.spiders"

ADDONS = {
    # Adds the pipeline and the extension.
    "reports.addons.ReportAddon": 300,  # after those of others
}

ROBOTSTXT_OBEY = True

CONCURRENT_REQUESTS_PER_DOMAIN = 1
DOWNLOAD_DELAY = 1

REPORT_FILE = "out/report.json"
REPORT_FIELDS = ["title", "price"]

FEED_EXPORT_ENCODING = "utf-8"
