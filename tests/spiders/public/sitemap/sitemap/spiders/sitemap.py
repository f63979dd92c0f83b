"""The books of a site's sitemaps, which robots.txt names."""

from scrapy.spiders import SitemapSpider

from sitemap import SITE


class BookSitemapSpider(SitemapSpider):
    name = "sitemap"
    sitemap_urls = [f"{SITE}/robots.txt"]
    sitemap_rules = [("/book/", "parse_book")]
    sitemap_follow = [r"/sitemap-\w\."]

    def parse_book(self, response):
        yield {"title": response.css("h1::text").get(), "url": response.url[len(SITE) :]}
