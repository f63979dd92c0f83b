"""Make text of the WARC files in a folder by datatrove, as in its example for FineWeb.

The filters by URL list, by language and by FineWeb's own rules are left out: the second needs a
model from the network.
"""

from __future__ import annotations

import sys

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.extractors import Trafilatura
from datatrove.pipeline.filters import C4QualityFilter, GopherQualityFilter, GopherRepetitionFilter
from datatrove.pipeline.readers import WarcReader
from datatrove.pipeline.writers.jsonl import JsonlWriter

if __name__ == "__main__":
    source, out = sys.argv[1:]
    LocalPipelineExecutor(
        pipeline=[
            WarcReader(source, glob_pattern="*.warc.gz"),
            # Its second for a page is by the clock, too little on a busy machine.
            Trafilatura(favour_precision=True, timeout=60),
            GopherRepetitionFilter(),
            GopherQualityFilter(),
            C4QualityFilter(filter_no_terminal_punct=False),
            JsonlWriter(f"{out}/data"),
        ],
        logging_dir=f"{out}/logs",
    ).run()
