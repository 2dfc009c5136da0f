"""Sentences of the package in the command line's words: a setting is a flag there."""

import dataclasses
import re

from fedjax_fair.cli.experiment import Experiment

ARGUMENT = re.compile(r"(?<![\w.:'\"-])(?<!\w\()(\w+)=(?:'(\w+)'(?: or '(\w+)')?|(?=\s))")
"""``missing='mean' or 'median'`` or ``missing=``, but not in a call such as ``ff.drfa(sampling='selector')``, nor
in what a sentence quotes: ``got "words='codes'"``, ``--out='a'``."""


def in_flags(sentence: str) -> str:
    """The sentence with the arguments that it advises as flags; of those that have none it says whose they are.

    >>> in_flags("fill them by missing='mean' or 'median', or as words by words='codes'")
    "fill them by --missing mean or median, or as words by words='codes' in Python"
    >>> in_flags("empty it (missing= fills gaps), unlike ff.drfa(sampling='selector'), got --out='a'")
    "empty it (--missing fills gaps), unlike ff.drfa(sampling='selector'), got --out='a'"
    """
    flags = {field.name: field.name.replace("_", "-") for field in dataclasses.fields(Experiment)}
    flags |= {"padding": "cnn.padding"} if sentence.startswith("cnn ") else {}

    def as_flag(found: re.Match[str]) -> str:
        name, *values = found.groups()
        given = [value for value in values if value is not None]
        if name in flags:
            return f"--{flags[name]}{' ' * bool(given)}{' or '.join(given)}"
        return f"{found[0]} in Python" if given else found[0]

    return ARGUMENT.sub(as_flag, sentence)
