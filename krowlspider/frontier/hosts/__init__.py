"""The hosts of a crawl: which host is fetched next, and when.

Each host is in one scheduling state: idle, resting until its time, blocked by a full share, in
flight, waiting for a robots.txt that another host serves, or deferred.
"""
