"""Monitoring of the process: event loop lag, memory, metrics, and the watchdog process."""
