"""A subclass of the broad spider, with a name of its own."""

from krowlspider.spiders.broad import BroadSpider


class BroaderSpider(BroadSpider):
    name = "broader"
