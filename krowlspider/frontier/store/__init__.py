"""The frontier's key-value store: its contract, LevelDB, and the layout of the keys."""
