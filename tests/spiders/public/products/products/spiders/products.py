"""The entries of a feed for shops, in a namespace, and the page of each."""

import scrapy
from scrapy.spiders import XMLFeedSpider

from products import SITE


class ProductsSpider(XMLFeedSpider):
    name = "products"
    start_urls = [f"{SITE}/products.xml"]
    namespaces = [("g", "http://base.google.com/ns/1.0")]
    itertag = "item"
    iterator = "xml"

    def parse_node(self, response, node):
        item = {
            "id": node.xpath("@id").get(),
            "title": node.xpath("g:title/text()").get(),
            "price": node.xpath("g:price/text()").get(),
        }
        return scrapy.Request(
            node.xpath("link/text()").get(), callback=self.parse_book, meta={"item": item}
        )

    def parse_book(self, response):
        item = response.meta["item"]
        item["stock"] = response.css(".availability::text").re_first(r"\d+")
        return item
