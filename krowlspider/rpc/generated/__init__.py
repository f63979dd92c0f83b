"""Modules that `make proto` makes of deploy/proto."""
