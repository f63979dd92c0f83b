"""The hand-over of hosts to their new owners: sent in chunks through Redis, and received."""
