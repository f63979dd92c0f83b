"""Power loss, simulated: a crawl notes what it has synced, and after its death everything else is
taken away.

`child` is the crawl's process, `disk` takes away what was not synced, `survivors` looks at what is
left.
"""
