"""Figures of a job that are read at each scrape."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from krowlspider.crawl.monitoring.machine_memory import memory_to_be_had

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from krowlspider.crawl.crawls import Crawl
    from krowlspider.crawl.job import Job
    from krowlspider.crawl.nodes.node import Node

    # A number, or one for each value of the label.
    Figures: TypeAlias = Mapping[str, float | dict[str, float]]

_MB = 1024 * 1024


def figures(crawl: Crawl) -> Figures:
    """Return the counters and gauges of the table by their names."""
    job, node, meters = crawl.job, crawl.node, crawl.job.meters
    assert meters is not None
    return {
        "krowl_fetch_content_type": meters.content_types,
        "krowl_fetch_http_version": meters.http_versions,
        "krowl_fetch_tls_version": meters.tls_versions,
        "krowl_dns_cache_names": job.fetching.resolver.cached_names,
        "krowl_archive_queue_bytes": job.archive.queued,
        "krowl_archive_queue_limit_bytes": job.archive.queue_bytes,
        "krowl_memory_limit_bytes": job.memory.limit,
        "krowl_machine_memory_bytes": memory_to_be_had(),
        "krowl_process_threads": threading.active_count(),
        "krowl_crawl_paused": _paused(job, node),
        **_of_frontier(job),
        **_of_disks(job),
        **_of_leveldb(job),
        **_of_cluster(node),
    }


def _of_frontier(job: Job) -> Figures:
    schedule = job.frontier.schedule
    states = Counter(host.state for host in schedule.cache.hosts.values())
    due = schedule.next_due()
    return {
        "krowl_frontier_hosts_in_memory": {
            state.value.replace(" ", "_"): float(count) for state, count in states.items()
        },
        "krowl_frontier_oldest_due_seconds": (
            0.0 if due is None else max(0.0, job.frontier.now() - due)
        ),
    }


def _of_disks(job: Job) -> Figures:
    if job.guard is None:
        return {"krowl_disk_free_bytes": {}, "krowl_disk_floor_bytes": 0}
    free = job.guard.free_bytes
    return {
        "krowl_disk_free_bytes": {
            "archive": free.get(job.archive.directory, 0),
            "frontier": free.get(job.folder.path, 0),
        },
        "krowl_disk_floor_bytes": job.guard.floor,
    }


def _paused(job: Job, node: Node | None) -> dict[str, float]:
    return {
        "person": job.is_paused or (node is not None and node.is_paused),
        "disk": job.full is not None,
        "outage": bool(job.outages.is_out),
        "memory": job.memory.keeps_out,
        "cluster": node is not None and node.running and bool(node.waits_for),
    }


def _of_leveldb(job: Job) -> Figures:
    """Return the figures of ``leveldb.stats``, a table with a line for each level."""
    parts = ("files", "size", "compaction", "read", "written")
    found: dict[str, dict[str, float]] = {part: {} for part in parts}
    for line in job.store.property("stats").splitlines():
        level, *columns = line.split()
        if level.isdigit() and len(columns) == len(parts):
            for part, column in zip(parts, columns, strict=True):
                found[part][level] = float(column)

    def in_bytes(part: str) -> dict[str, float]:
        return {level: size * _MB for level, size in found[part].items()}

    return {
        "krowl_leveldb_files": found["files"],
        "krowl_leveldb_size_bytes": in_bytes("size"),
        "krowl_leveldb_memory_bytes": float(job.store.property("approximate-memory-usage") or 0),
        "krowl_leveldb_compaction_seconds": found["compaction"],
        "krowl_leveldb_compaction_read_bytes": in_bytes("read"),
        "krowl_leveldb_compaction_written_bytes": in_bytes("written"),
    }


def _of_cluster(node: Node | None) -> Figures:
    if node is None or not node.running:
        names = ("joined", "lease", "ring", "dead_nodes", "inbox_messages")
        return {f"krowl_cluster_{name}": 0 for name in names}
    view = node.cluster.view
    return {
        "krowl_cluster_joined": node.joined,
        "krowl_cluster_lease": node.cluster.has_lease,
        "krowl_cluster_ring": 0 if view is None else view.ring.number,
        "krowl_cluster_dead_nodes": len(node.dead_nodes),
        "krowl_cluster_inbox_messages": node.inbox_length,
    }
