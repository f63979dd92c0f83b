from exports.items import Quote


def uri_params(params, spider):
    return {**params, "day": spider.day}


class OfAda:
    """An item filter: the quotes of one author."""

    def __init__(self, feed_options):
        self.author = "Ada Lovelace"

    def accepts(self, item):
        return isinstance(item, Quote) and item["author"] == self.author
