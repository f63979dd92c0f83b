"""The rows of a table."""

from scrapy.spiders import CSVFeedSpider

from stations import SITE


class StationsSpider(CSVFeedSpider):
    name = "stations"
    start_urls = [f"{SITE}/stations.csv"]
    delimiter = ";"
    quotechar = "'"
    headers = ["name", "degrees"]

    def parse_row(self, response, row):
        if row["name"] == "name":
            return None
        return {"station": row["name"], "degrees": row["degrees"]}
