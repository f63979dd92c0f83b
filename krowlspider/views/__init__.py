"""The output of the commands: text for people and JSON for programs."""
