"""``scrapy search``."""

from krowlspider.programs.deferred import DeferredCommand


class Command(DeferredCommand):
    program = "krowlspider.programs.search"
