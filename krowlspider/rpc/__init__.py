"""Services over gRPC: a server with its limits, and what is served by it."""
