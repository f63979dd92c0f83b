"""``python cdxops.py INDEX``: what pywb answers to the queries on its stdin, a list in JSON.

Prints a list of the lines of each answer, in pywb's form of CDXJ.
"""

import json
import sys

from pywb.warcserver.warcserver import init_index_agg


def answers(index: str, queries: list[dict[str, object]]) -> list[list[str]]:
    server = init_index_agg({"index": index})
    found = []
    for query in queries:
        lines, _ = server({**query, "nosource": "true"})
        found.append([each.to_cdxj().strip() for each in lines])
    return found


if __name__ == "__main__":
    print(json.dumps(answers(sys.argv[1], json.load(sys.stdin))))
