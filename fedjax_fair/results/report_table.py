"""A table of the report page."""

from collections.abc import Sequence
from html import escape

FITTING = 6
"""Figures that fit side by side on a telephone."""


def foldable(html: str) -> str:
    """A name that may go on in the next line, after ``:`` and ``_``."""
    return html.replace(":", ":<wbr>").replace("_", "_<wbr>")


def with_small(cell: str) -> str:
    """``mean±std`` of a printed table, the deviation in small letters."""
    mean, sign, std = cell.partition("±")
    return f"{mean} <small>± {std}</small>" if sign else mean


def html_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Headings, which are plain text, over rows of HTML.

    On a telephone a row's name has a line of its own, with all figures below it (``report_style.py``).
    """
    head = "".join(f"<th>{foldable(escape(text))}</th>" for text in heads)
    lines = [[foldable(name), *figures] for name, *figures in rows]
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>" for line in lines)
    hint = f'<p class="hint">{len(heads) - 1} columns: scroll sideways.</p>' if len(heads) - 1 > FITTING else ""
    return (
        f'{hint}<div class="wide"><table style="--figures:{len(heads) - 1}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
