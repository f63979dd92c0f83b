from itemloaders.processors import Compose, MapCompose, TakeFirst
from scrapy.loader import ItemLoader

from bookshelf.items import Book


class BookLoader(ItemLoader):
    default_item_class = Book
    default_output_processor = TakeFirst()

    title_in = MapCompose(str.strip)
    price_in = MapCompose(lambda text: float(text.strip().lstrip("£")))
    stock_in = Compose(TakeFirst(), int)
    tags_out = MapCompose(str.lower)
