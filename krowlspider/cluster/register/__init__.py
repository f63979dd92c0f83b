"""Membership by a register: lease, heartbeat, identity seed, and the nodes that are waited for.

`port` is what a register does. `krowlspider.cluster.registers` and `krowlspider.cluster.local` do
it.
"""
