"""The frontier: host table and heap, per-host queues, leases, seen set, and the stores they are kept in."""
