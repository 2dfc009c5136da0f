r"""A table for a paper, of package booktabs."""

import re
from collections.abc import Mapping, Sequence


def latex(titles: Sequence[str], rows: Mapping[str, Sequence[tuple[str, bool]]], rule_before: str | None) -> str:
    """A ``tabular``: per row its name and cells, each a text and whether it gets a star; a line before one row."""
    heads = " & ".join(title.replace("%", r"\%").replace("²", "$^2$") for title in titles)
    lines = [r"\begin{tabular}{l" + "r" * len(titles) + "}", r"\toprule", rf"rule & {heads} \\", r"\midrule"]
    for name, cells in rows.items():
        lines += [r"\midrule"] if name == rule_before else []
        shown = [f"${text}{'^{*}' if star else ''}$".replace("±", r" \pm ") for text, star in cells]
        lines.append(" & ".join([re.sub(r"([_%&#$])", r"\\\1", name), *shown]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"
