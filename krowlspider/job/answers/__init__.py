"""How requests end: failures, why a host waits, retries, robots.txt, outages."""
