"""Write files into a database, by a process that tests kill.

Run it by ``python -m tests.catalogue.database_kills URL FILES ROWS``: files that are done already
are passed over, as by `scrapy catalogue`.
"""

from __future__ import annotations

import sys

from krowlspider.catalogue.databases import sink_at
from tests.catalogue.made_rows import ALL, made_rows


def names(files: int) -> list[str]:
    return [f"{number:05}.warc.gz" for number in range(files)]


def main(url: str, files: str, rows: str) -> None:
    sink = sink_at(url, ALL, print)
    done = sink.done()
    print("open", flush=True)
    for name in names(int(files)):
        if name not in done:
            sink.write(name, made_rows(name, int(rows)))
    sink.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
