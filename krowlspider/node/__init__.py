"""A crawl on all cores of a machine: processes of one static ring, their Redis and their folders.

`supervisor` starts them and starts again the ones that die; `handover` moves hosts between their
folders when their number changes; `figures` adds up what they have done, and `serving` serves it.
"""
