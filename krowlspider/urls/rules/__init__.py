"""Rules that refuse URLs: scope, crawler traps, exclusions and duplicate bodies."""
