"""A crawl on all cores of a machine: processes that are nodes, their register, Redis and folders.

`supervisor` starts them, starts again the ones that die, and sends away those that are too many;
`register` says which these are; `figures` adds up what they have done, and `serving` serves it.
"""
