class StagePipeline:
    """Adds the stage to each item."""

    def __init__(self, stage):
        self.stage = stage

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler.settings["STAGE"])

    def process_item(self, item):
        return {**item, "stage": self.stage}
