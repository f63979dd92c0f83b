"""A form with a token and a session, and the pages behind it."""

from scrapy.http import FormRequest
from scrapy.spiders import Spider

from login import SITE


class LoginSpider(Spider):
    name = "login"
    start_urls = [f"{SITE}/login"]

    def parse(self, response):
        token = response.css("input[name=csrf_token]::attr(value)").get()
        yield FormRequest(
            response.urljoin(response.css("form::attr(action)").get()),
            formdata={"csrf_token": token, "username": "reader", "password": "secret words"},
            callback=self.after_login,
        )

    def after_login(self, response):
        if not response.css('a[href="/logout"]'):
            self.logger.error("Login failed")
            return
        yield from self.parse_shelf(response)

    def parse_shelf(self, response):
        yield {"loan": response.css(".loan::text").get(), "url": response.url[len(SITE) :]}
        for link in response.css("a.next"):
            yield response.follow(link, self.parse_shelf)
