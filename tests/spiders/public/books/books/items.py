"""The items of the projects."""

from itemloaders.processors import MapCompose, TakeFirst
from scrapy.item import Field, Item
from scrapy.loader import ItemLoader


class Book(Item):
    title = Field()
    price = Field()
    stock = Field()
    url = Field()
    image_urls = Field()
    images = Field()


class BookLoader(ItemLoader):
    default_item_class = Book
    default_input_processor = MapCompose(str.strip)
    default_output_processor = TakeFirst()

    price_in = MapCompose(str.strip, lambda text: text.lstrip("£"), float)
    stock_in = MapCompose(lambda text: int("".join(filter(str.isdigit, text))))
    image_urls_out = list
