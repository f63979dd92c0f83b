"""One file for each kind of project."""
