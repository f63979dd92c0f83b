"""The schedule: which host is fetched next, and when; pauses, blocks and delays of a person."""
