"""What people and programs see: output of commands, live page and API, console, top, report."""
