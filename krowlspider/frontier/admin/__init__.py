"""A frontier seen and changed by a person: view, edit, export, import, repair."""
