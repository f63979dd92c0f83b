"""Other crawlers: scripts that run in venvs of their own and import nothing of this project."""
