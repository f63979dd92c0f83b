"""The register of a cluster in Consul, and its nodes as services there."""
