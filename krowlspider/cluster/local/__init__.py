"""The register of the processes of one machine, which their supervisor serves at a socket."""
