"""The README's table of clients and servers, made from what the tests saw.

`python -m tests.wire.client_table` writes it out as Markdown; with `--write` into the README.
"""

from __future__ import annotations

import json
import re
import sys
from typing import cast

from tests import readme
from tests.tools.find import TOOLS
from tests.wire.clients_tried import CLIENTS
from tests.wire.clients_upstreams import TITLES

SEEN = TOOLS / "clients.json"
BEGIN, END = "<!-- clients: made by `python -m tests.wire.client_table --write` -->", "<!-- /clients -->"

# Client and upstream; the scenes that were played, each with what was wrong, `None` for nothing.
Outcomes = dict[str, dict[str, dict[str, str | None]]]


def render(outcomes: Outcomes) -> str:
    """Return the table; a cell tells how many scenes came out right, and which did not."""
    head = ["client", "tasks", *TITLES.values()]
    rows = [head, ["---"] * len(head)]
    for name, client in CLIENTS.items():
        row = outcomes.get(name, {})
        cells = [_cell(row[upstream]) if upstream in row else "" for upstream in TITLES]
        rows.append([client.title, client.dialect, *cells])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cell(scenes: dict[str, str | None]) -> str:
    wrong = [scene for scene, mistake in scenes.items() if mistake]
    right = len(scenes) - len(wrong)
    return f"{right}/{len(scenes)} (not {', '.join(wrong)})" if wrong else f"{right}/{len(scenes)}"


def shown(text: str) -> str | None:
    """Return the table that a text shows between the marks, `None` where it has none."""
    found = re.search(f"{re.escape(BEGIN)}\n+(.*?)\n*{re.escape(END)}", text, re.DOTALL)
    return f"{found[1]}\n" if found else None


def read() -> Outcomes:
    """Return what was seen in the last whole run."""
    return cast("Outcomes", json.loads(SEEN.read_text(encoding="utf-8")))


def keep(outcomes: Outcomes) -> None:
    """Keep what was seen."""
    SEEN.parent.mkdir(exist_ok=True)
    SEEN.write_text(json.dumps(outcomes, indent=1) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Write the table out or into the README."""
    table = render(read())
    if arguments != ["--write"]:
        sys.stdout.write(table)
        return 0
    text = readme.text()
    old = shown(text)
    if old is None:
        sys.stderr.write(f"the README lacks the marks:\n{BEGIN}\n{END}\n")
        return 1
    begin, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    readme.README.write_text(f"{begin}{BEGIN}\n\n{table}\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
