import itertools


class RotatingProxyMiddleware:
    """Sends each request through the next proxy of the list."""

    def __init__(self, proxies):
        self.proxies = itertools.cycle(proxies)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler.settings.getlist("PROXIES"))

    def process_request(self, request):
        request.meta.setdefault("proxy", next(self.proxies))
