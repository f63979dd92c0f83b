from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from scrapy import Request
from scrapy.pipelines.files import FilesPipeline


class NamedFilesPipeline(FilesPipeline):
    """Keeps the names that files have on the site, in a folder for each book. They may be large."""

    def get_media_requests(self, item, info):
        for url in item["file_urls"]:
            yield Request(url, meta={"download_maxsize": 20_000_000})

    def file_path(self, request, response=None, info=None, *, item=None):
        name = PurePosixPath(unquote(urlsplit(request.url).path)).name
        return f"{item['folder']}/{name.replace(' ', '-')}"
