"""A crawl on all cores of a machine: processes that are nodes, their register, Redis and folders.

`supervisor` starts them, starts again the ones that die, and sends away those that are too many;
`processes` has their register; `figures` adds up what they have done. `live_page` and `metrics`
serve it.
"""
