"""The corpus: finished WARC files of any writer become records of clean text with provenance.

Worker processes (`worker`) first read robots.txt and other opt-outs of all sites (`sites`).
Then they read slices of WARC files (`pages`), take the main text and the metadata of each page
(`text`), and judge it (`sites.hearing`, `quality`). One process (`build`) takes the slices in
order, drops duplicates (`copies`) and writes the final shards. A slice is final once
its marker exists, so a process that is killed anywhere leaves each accepted page exactly once.

The event loop of a crawl never runs it.
"""
