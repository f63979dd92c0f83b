"""Mutations of the frontier's durability, of the archive, and of the cluster."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_FRONTIER = "krowlspider/frontier"

DURABILITY_AND_CLUSTER = (
    # --- what comes into the frontier ---
    Mutation(
        "refused-url-marked-seen",
        "4: a URL that a limit refuses is not marked seen",
        f"{_FRONTIER}/frontier.py",
        "self.seen.mark(name, [each.key for each in taken if each.key is not None])",
        "self.seen.mark(name, [each.key for each in some if each.key is not None])",
        ("tests/frontier/test_frontier.py",),
    ),
    Mutation(
        "marks-before-the-entries",
        "4: seen mark and queue entry are one batch",
        f"{_FRONTIER}/frontier.py",
        "self.seen.end_batch(batch)\n",
        "marks = self.store.batch()\n        self.seen.end_batch(marks)\n        marks.write()\n",
        ("tests/frontier/test_outbox.py",),
    ),
    Mutation(
        "drop-not-counted",
        "8: every drop is counted with its reason",
        "krowlspider/frontier/entry_queues.py",
        'self._counters[f"dropped/{cap}"] += 1',
        "pass",
        ("tests/frontier/test_frontier.py",),
    ),
    Mutation(
        "outbox-without-a-cap",
        "9: the outbox has a bound",
        f"{_FRONTIER}/frontier.py",
        "if self.outbox.full:",
        "if self.outbox.full and item.key == item.host:",
        ("tests/frontier/test_outbox.py",),
    ),
    Mutation(
        "domain-fills-the-frontier",
        "the share of a domain in a full frontier",
        "krowlspider/frontier/entry_queues.py",
        'room, cap = self._load.room(host.domain, _SHARES), "domain_share"',
        "pass",
        ("tests/frontier/hosts/test_domain_load.py",),
    ),
    # --- entries, leases and acknowledgements ---
    Mutation(
        "entry-removed-at-the-pop",
        "5: a queue entry stays on disk until its page is done",
        "krowlspider/frontier/entry_queues.py",
        "queue.ahead = ahead\n                return",
        "queue.ahead = ahead\n"
        "                batch = self._store.batch()\n"
        "                batch.delete(schema.queue_key(\n"
        "                    schema.host_key(host.name), number >> 8, level.head - 1\n"
        "                ))\n"
        "                batch.write()\n"
        "                return",
        ("tests/frontier/test_frontier.py", "-k", "returns_a_lease_to_its_old_place"),
    ),
    Mutation(
        "retry-removed-before-it-is-queued",
        "5: a retry replaces its entry in one batch",
        "krowlspider/frontier/entry_queues.py",
        "batch.delete(self.key_of(lease))\n        again",
        "batch.delete(self.key_of(lease))\n"
        "        batch.write()\n"
        "        batch = self._store.batch()\n"
        "        again",
        ("tests/frontier/test_entry_queues.py",),
    ),
    Mutation(
        "retry-and-host-in-two-batches",
        "1: a retry and the wait of its host are one batch",
        "krowlspider/job/flights.py",
        "            self._schedule.release(host, wait, batch)",
        "            if batch is not None:\n"
        "                self._schedule.cache.record_now(host, batch)\n"
        "            self._schedule.release(host, wait)",
        ("tests/job/test_flights.py",),
    ),
    Mutation(
        "excused-page-counts-as-tried",
        "a failure that is not the page's leaves it its place",
        "krowlspider/job/flights.py",
        "if in_flight.end is End.EXCUSED:",
        "if in_flight.end is End.TURNED_BACK:",
        ("tests/job/test_flights.py",),
    ),
    Mutation(
        "acknowledged-before-the-archive",
        "5: an entry leaves the disk after its WARC records are durable",
        "krowlspider/job/commits.py",
        "self._note.put(commit, await self._archive.sync(on_sync))\n"
        "        await _write(commit.write)",
        "await _write(commit.write)\n"
        "        self._note.put(commit, await self._archive.sync(on_sync))",
        ("tests/job/test_commits.py",),
    ),
    Mutation(
        "commit-not-synced",
        "5: a commit is durable",
        f"{_FRONTIER}/frontier.py",
        "batch = self.store.batch(sync=True)\n        counted",
        "batch = self.store.batch()\n        counted",
        ("tests/powerloss/test_power_loss.py", "-k", "outlive"),
    ),
    Mutation(
        "links-less-durable-than-their-page",
        "5: an entry leaves the disk after its links are written",
        "krowlspider/frontier/store/store.py",
        "if sync:\n            self._sync()\n        with",
        "with",
        ("tests/powerloss/test_power_loss.py", "-k", "outlive"),
    ),
    Mutation(
        "damaged-store-opened",
        "damage of the store is found when it is opened",
        "krowlspider/frontier/store/store.py",
        '"paranoid_checks": True',
        '"paranoid_checks": False',
        ("tests/frontier/store/test_store.py",),
    ),
    Mutation(
        "poison-after-four-deaths",
        "a page that kills the process three times is set aside",
        "krowlspider/frontier/work_mark.py",
        "if entry.strikes < POISON_STRIKES:",
        "if entry.strikes <= POISON_STRIKES:",
        ("tests/frontier/test_poison.py",),
    ),
    Mutation(
        "links-recent-after-the-host-left",
        "a host that was handed over is known no more",
        "krowlspider/frontier/seen.py",
        "        self.recent_links.clear()\n",
        "",
        ("tests/frontier/seen/test_seen_set.py",),
    ),
    Mutation(
        "refused-links-kept-as-known",
        "a link that is refused is found again",
        "krowlspider/job/intake.py",
        "recent.add(compress(urls, known))",
        "recent.add(urls)",
        ("tests/job/test_recent_links.py",),
    ),
    Mutation(
        "seen-urls-forgotten-at-a-start",
        "7: the seen set forgets nothing",
        "krowlspider/frontier/seen.py",
        "found.update(split_keys(keys))",
        "split_keys(keys)",
        ("tests/frontier/seen/test_seen_set.py",),
    ),
    Mutation(
        "fetching-on-a-full-disk",
        "the crawl pauses while a disk is below its floor",
        "krowlspider/engine/scheduler.py",
        "or job.failure is not None or self.is_holding:",
        "or job.failure is not None:",
        ("tests/job/test_disk_guard.py",),
    ),
    Mutation(
        "commit-on-the-event-loop",
        "10: no fsync on the event loop",
        "krowlspider/job/commits.py",
        "await run_in_thread(write)",
        "write()",
        ("tests/job/test_commits.py",),
    ),
    Mutation(
        "foreign-pickle-read",
        "11: nothing from the network is unpickled",
        "krowlspider/job/codec.py",
        "if entry.request[:1] not in AS_JSON:",
        "if not entry.request:",
        ("tests/job/test_codec.py",),
    ),
    # --- the archive ---
    Mutation(
        "warc-file-not-synced",
        "5: a synced WARC file is durable",
        "krowlspider/archive/write/series.py",
        "os.fsync(self._descriptor)",
        "os.fstat(self._descriptor)",
        ("tests/archive/write/test_series.py",),
    ),
    Mutation(
        "revisit-outlives-its-original",
        "5: a payload is in the index only after its record is durable",
        "krowlspider/archive/write/series.py",
        "            self._file.sync()\n            self._composer.synced()",
        "            self._composer.synced()\n            self._file.sync()",
        ("tests/archive/write/test_series.py",),
    ),
    Mutation(
        "archive-queue-without-a-bound",
        "9: the queue of the archive has a bound",
        "krowlspider/engine/downloader.py",
        "len(self.active) >= self.total_concurrency or self._job.archive.full",
        "len(self.active) >= self.total_concurrency",
        ("tests/engine/test_downloader.py",),
    ),
    Mutation(
        "revisit-of-a-cut-payload",
        "a revisit refers to a whole payload with the same digest",
        "krowlspider/archive/write/composer.py",
        "                and not capture.truncated\n",
        "",
        ("tests/archive/write/test_composer.py",),
    ),
    # --- the cluster ---
    Mutation(
        "hosts-of-others-fetched",
        "6: only the owner fetches a host",
        f"{_FRONTIER}/schedule/scheduler.py",
        "if not self.ownership.is_ours(host.name):",
        "if not host.name:",
        ("tests/frontier/schedule/test_ownership.py",),
    ),
    Mutation(
        "fetching-without-a-lease",
        "6: a node without a lease fetches nothing",
        "krowlspider/job/nodes/node.py",
        "            and self.cluster.has_lease\n",
        "",
        ("tests/job/nodes/test_node.py",),
    ),
    Mutation(
        "messages-for-others-queued",
        "6: a message for a host of another node is forwarded",
        "krowlspider/job/cluster_traffic.py",
        "if owner is not None:\n                foreign +=",
        "if owner == host:\n                foreign +=",
        ("tests/job/test_cluster_traffic.py",),
    ),
    Mutation(
        "lease-without-a-margin",
        "6: a node stops before others take over",
        "krowlspider/cluster/register/lease.py",
        "return self._renewed + self._ttl * (1 - _MARGIN)",
        "return self._renewed + self._ttl",
        ("tests/cluster/test_lease.py",),
    ),
    Mutation(
        "lease-counted-from-the-answer",
        "6: a lease is counted from the start of its renewal",
        "krowlspider/cluster/register/lease.py",
        "self._renewed = began\n\n    async def found",
        "self._renewed = monotonic()\n\n    async def found",
        ("tests/cluster/test_lease.py",),
    ),
    Mutation(
        "vanished-member-replaced-at-once",
        "6: a member that vanished stays for a TTL",
        "krowlspider/cluster/ring/live_members.py",
        "if now < since + self._ttl:",
        "if now < since:",
        ("tests/cluster/test_live_members.py",),
    ),
    Mutation(
        "dead-member-replaced-after-its-lease",
        "the domains of a dead node wait for it",
        "krowlspider/cluster/ring/live_members.py",
        "self._delay = max(ttl, delay)",
        "self._delay = ttl",
        ("tests/cluster/test_live_members.py",),
    ),
    Mutation(
        "message-removed-before-it-is-durable",
        "a message leaves Redis after it is durable",
        "krowlspider/cluster/transport/inbox.py",
        "self._unpublished.update(await each.make_durable(marks))\n"
        "            await self._end_turn(each.reader, messages)",
        "await self._end_turn(each.reader, messages)\n"
        "            self._unpublished.update(await each.make_durable(marks))",
        ("tests/cluster/test_inbox.py", "-k", "durable"),
    ),
    Mutation(
        "message-removed-when-it-is-sent",
        "a message leaves the outbox after its owner has it on disk",
        "krowlspider/cluster/transport/forwarder.py",
        "last = min(heard.last, stream.sent)",
        "last = stream.sent",
        ("tests/cluster/test_streams.py",),
    ),
    Mutation(
        "lost-batch-stepped-over",
        "a batch is not acknowledged if an earlier one is missing",
        "krowlspider/frontier/outbox.py",
        "if number > before.number + 1:",
        "if number > before.number + 1 and before.number < 0:",
        ("tests/frontier/test_finders.py",),
    ),
    Mutation(
        "acknowledged-before-it-is-durable",
        "a message is acknowledged after it is durable",
        "krowlspider/job/cluster_traffic.py",
        "await self._job.commits.make_durable(batch)",
        "await asyncio.sleep(0)",
        ("tests/powerloss/test_power_loss.py", "-k", "left_redis"),
    ),
    Mutation(
        "end-found-from-one-heartbeat",
        "the crawl is over after two idle heartbeats of each node",
        "krowlspider/cluster/ring/live_members.py",
        "_LATER = 2",
        "_LATER = 0",
        ("tests/cluster/test_termination.py",),
    ),
    Mutation(
        "chunk-acknowledged-before-it-is-durable",
        "a chunk of a hand-over is acknowledged after it is durable",
        "krowlspider/job/nodes/receiver.py",
        "await self._make_durable()\n            await self._acknowledge(acknowledgements)",
        "await self._acknowledge(acknowledgements)\n            await self._make_durable()",
        ("tests/job/handover/test_sender.py", "-k", "durable"),
    ),
)
