"""``scrapy parse`` with Scrapy's own components."""

from scrapy.commands.parse import Command as ScrapyCommand

from krowlspider.commands.single_page import SinglePage


class Command(SinglePage, ScrapyCommand): ...
