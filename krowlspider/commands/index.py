"""``scrapy index``."""

from krowlspider.programs.deferred import DeferredCommand


class Command(DeferredCommand):
    program = "krowlspider.programs.index"
