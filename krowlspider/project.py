"""The settings of this checkout: a project with the add-on, as any other (docs/addon.md).

Your own settings may stand below; krowlspider/settings.py lists all, with defaults and reasons.
"""

from krowlspider.errors import prepare_command

# Scrapy's commands import this module before any other of the project.
prepare_command()

BOT_NAME = "krowlspider"
SPIDER_MODULES = ["krowlspider.spiders"]
NEWSPIDER_MODULE = "krowlspider.spiders"
# Only where the package is not installed: its entry points name the same commands.
COMMANDS_MODULE = "krowlspider.commands"
ADDONS = {"krowlspider.addon.Krowl": 100}
