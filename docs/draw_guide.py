"""Draw the pictures of the user guide: ``python docs/draw_guide.py [PAGE ...]``."""

import re
import sys
from pathlib import Path
from typing import Any

import guide_pictures
from draw_coefficients import save

DOCS = Path(__file__).parent
DRAWN = {
    "start": "ff.plot.lorenz({'FedMABA': history.accuracy[-1]})",
    "own_rule": "ff.plot.coefficients(history)",
    "contribution": "ff.plot.contribution(found)[0]",
}
"""By page, what is drawn of the names that its code blocks leave behind."""
FIRST = {"own_rule": 3}
"""How many blocks of a page are run; of others all."""


def of_page(page: str) -> Any:
    """Run a page's Python, then draw."""
    scope: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    for block in blocks[: FIRST.get(page)]:
        exec(compile(block, page, "exec"), scope)
    return eval(DRAWN[page], scope).get_figure(root=True)


MEASURED = {
    "compare": guide_pictures.contest,
    "results": guide_pictures.figures,
    "data": guide_pictures.partitions,
    "memory": guide_pictures.personal,
    "sweeps": guide_pictures.grid,
    "losses": guide_pictures.readings,
    "pretrained": guide_pictures.begun,
    "runs": guide_pictures.interrupted,
    "cluster": guide_pictures.pieces,
}
PICTURES = {**{page: lambda page=page: of_page(page) for page in DRAWN}, **MEASURED}

if __name__ == "__main__":
    for one in sys.argv[1:] or PICTURES:
        save(PICTURES[one](), f"guide_{one}")
