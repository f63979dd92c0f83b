"""The files of the live page. They ask for nothing from another origin."""
