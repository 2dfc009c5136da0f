r"""A table for a paper, of package booktabs."""

import re
from collections.abc import Mapping, Sequence

SIGNS = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SIGNS |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
"""Those that no backslash makes a letter."""


def latex(
    titles: Sequence[str],
    rows: Mapping[str, Sequence[tuple[str, bool]]],
    rule_before: str | None = None,
    corner: str = "rule",
) -> str:
    """A ``tabular``: per row its name and cells, each a text and whether it gets a star; a line before one row."""
    heads = " & ".join(_escaped(title).replace("²", "$^2$") for title in titles)
    lines = [
        r"\begin{tabular}{l" + "r" * len(titles) + "}",
        r"\toprule",
        rf"{_escaped(corner)} & {heads} \\",
        r"\midrule",
    ]
    for name, cells in rows.items():
        lines += [r"\midrule"] if name == rule_before else []
        guard = "{}" * name.startswith(("[", "*"))  # behind a line's end these two would be its arguments
        lines.append(" & ".join([guard + _escaped(name), *(_number(*cell) for cell in cells)]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _escaped(name: str) -> str:
    return re.sub(r"[_%&#${}\\~^<>|]", lambda found: SIGNS.get(found[0], "\\" + found[0]), name)


def _number(text: str, star: bool) -> str:
    said = re.sub(r"e([+-])0*(\d+)", lambda found: rf" \times 10^{{{found[1].strip('+')}{found[2]}}}", text)
    return "--" if text == "–" else f"${said}{'^{*}' if star else ''}$".replace("±", r" \pm ").replace(" [", r"\ [")
