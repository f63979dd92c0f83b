from stages.settings.base import *

STAGE = "staging"
CLOSESPIDER_ITEMCOUNT = 100
FEEDS = {"out/items.jsonl": {"format": "jsonlines"}}
