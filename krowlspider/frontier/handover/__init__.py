"""The hand-over of hosts to and from other frontiers, in chunks of JSON."""
