"""This process as a member of a cluster, by a register."""
