"""Crawl with crawlee-python's ParselCrawler, with robots.txt. The last line printed is the number
of pages parsed.

Arguments: seeds file, pages, storage folder, concurrency, and the place of the queue: file
(crawlee's default) or memory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from datetime import timedelta
from pathlib import Path


async def main(seeds: str, pages: str, storage: str, concurrency: str, queue: str) -> None:
    os.environ["CRAWLEE_STORAGE_DIR"] = storage
    # crawlee reads the folder when it is imported.
    from crawlee import ConcurrencySettings, service_locator  # noqa: PLC0415
    from crawlee import storage_clients as storages  # noqa: PLC0415
    from crawlee.crawlers import ParselCrawler, ParselCrawlingContext  # noqa: PLC0415
    from crawlee.http_clients import ImpitHttpClient  # noqa: PLC0415

    service_locator.set_storage_client(
        storages.MemoryStorageClient() if queue == "memory" else storages.FileSystemStorageClient()
    )
    most = int(concurrency)
    crawler = ParselCrawler(
        http_client=ImpitHttpClient(verify=False),
        max_requests_per_crawl=int(pages),
        max_request_retries=0,
        respect_robots_txt_file=True,
        use_session_pool=False,
        concurrency_settings=ConcurrencySettings(
            min_concurrency=most, desired_concurrency=most, max_concurrency=most
        ),
        request_handler_timeout=timedelta(seconds=60),
        configure_logging=False,
    )

    done = 0

    @crawler.router.default_handler
    async def handle(context: ParselCrawlingContext) -> None:
        context.selector.css("title::text").get()
        await context.enqueue_links(strategy="all")
        nonlocal done
        done += 1

    logging.basicConfig(level=logging.WARNING)
    await crawler.run(Path(seeds).read_text().split())
    print("pages:", done)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
