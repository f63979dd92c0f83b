"""Settings: checks of each value, secrets in files, contradictions; the log as JSON."""
