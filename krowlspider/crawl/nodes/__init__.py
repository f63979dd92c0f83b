"""This process as a member of a cluster: by Consul, or by a static list of nodes."""
