"""Messages between nodes: their form, the outgoing side, the inbox, and Redis connections."""
