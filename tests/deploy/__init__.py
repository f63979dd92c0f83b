"""The files of deploy/, as far as they can be checked without root, Docker or a provider."""
