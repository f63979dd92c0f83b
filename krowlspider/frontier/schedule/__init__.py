"""The schedule: which host is fetched next, and when."""
