"""``scrapy bench`` with Scrapy's own components."""

from scrapy.commands.bench import Command as ScrapyCommand

from krowlspider.commands.single_page import SinglePage


class Command(SinglePage, ScrapyCommand): ...
