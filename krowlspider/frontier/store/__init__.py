"""Where a frontier is kept: LevelDB, its schema, and the same store in memory."""
