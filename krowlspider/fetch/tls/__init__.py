"""TLS on a connection, with bounds on the CPU time it takes."""
