"""robots.txt of each authority: the cache of decisions, and the gate that asks for unknown ones."""
