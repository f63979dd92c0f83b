"""Measure how much an attack by hostile hosts slows the good hosts of the same crawl.

``attacks`` is the table of attacks, ``web`` serves good and hostile hosts, ``run`` crawls beside
one attack at a time (docs/hostile.md), and ``soak`` crawls beside all of them for an hour.
"""
