"""Membership by Consul: lease, heartbeat, register, and the nodes that are waited for."""
