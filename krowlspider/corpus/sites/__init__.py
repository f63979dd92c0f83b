"""Opt-outs of whole sites: robots.txt, ai.txt, tdmrep.json, and the RSL licences they name.

Workers look for these files in all WARC files (`index`) before pages are read. The newest answer of
each host is kept (`index`), and workers look up the host of each page there (`hearing`).
"""
