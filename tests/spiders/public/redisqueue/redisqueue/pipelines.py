class NumberPipeline:
    """Adds the number of the page."""

    def process_item(self, item):
        item["page"] = int(item["url"].strip("/").rpartition("/")[2])
        return item
