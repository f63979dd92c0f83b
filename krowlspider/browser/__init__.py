"""Pages by a browser: each request of the browser is one of the crawl.

A page whose request has ``meta["playwright"]`` is fetched as any page is. Then scrapy-playwright
opens it in Chromium, whose only way out is a proxy of this process. The proxy hands over the page
as it was fetched. Whatever else the page asks for becomes a request in the queue of its host.
"""
