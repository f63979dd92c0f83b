"""Turn captures into records and WARC files. All but the writer's interface runs in its thread."""
