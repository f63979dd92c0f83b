"""Hostile hosts beside good ones: what each attack costs the good hosts of the same crawl.

``attacks`` is the table of attacks, ``web`` serves good and hostile hosts alike, ``run`` crawls
beside one attack at a time and writes docs/hostile.md, ``soak`` mixes all of them for an hour.
"""
