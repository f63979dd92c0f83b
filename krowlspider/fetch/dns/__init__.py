"""Resolve names to addresses: resolver, name servers and the hosts file."""
