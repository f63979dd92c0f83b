"""The frontier: every URL that a crawl knows and has not finished.

The life of a URL:

1. `Frontier.queue` writes its seen mark and its queue entry in one batch. A URL that another node
   owns gets an outbox entry in place of the queue entry.
2. Its host gets a place in the heap of hosts, ordered by due time (`schedule.cache`).
3. `HostScheduler.pop` returns a host that is due and has room in its domain, address and origin.
   `EntryQueues.pop` leases its next entry. Host and URL are in flight now.
4. `HostScheduler.release` sets the due time of the host, counted from the end of the request.
5. `Frontier.acknowledge` ends the lease once the page's records and links are written. The next
   commit removes the entry from disk, after the fsync of the archive.
6. A retry is `EntryQueues.replace`: the entry goes back to its host with its new counts.

A process that dies between 3 and 5 fetches the URL again: at least once, never lost.

The scheduling state of a host changes in one place, `schedule.transitions`, by one table,
`hosts.table`.
"""
