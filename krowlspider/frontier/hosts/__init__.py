"""What the frontier knows of a host: its scheduling state, its record, its counts."""
