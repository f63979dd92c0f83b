"""Monitoring: event loop lag, memory, disk, the server of metrics, crawl.log, and the watchdog."""
