"""Pure decisions of a cluster: the hash ring, claims on domains, termination, the census.

No I/O and no clock: readings of the register go in, decisions come out.
"""
