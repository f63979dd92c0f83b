"""Rules that refuse URLs: scope, crawler traps, exclusions, duplicate bodies; blocks of hosts."""
