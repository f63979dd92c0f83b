"""Opt-outs of whole sites: Content-Signal in robots.txt, ai.txt, and tdmrep.json.

Workers look for these files in all WARC files (`scan`) before pages are read. The newest answer of
each host is kept (`index`), and workers look up the host of each page there.
"""
