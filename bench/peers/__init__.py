"""Other crawlers, each a script that runs in a venv of its own and imports nothing of this project."""
