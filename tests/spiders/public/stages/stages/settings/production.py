from stages.settings.base import *

STAGE = "production"
