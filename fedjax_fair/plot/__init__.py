"""Figures for a paper: one column wide, 8 pt, legible in grey and to the colour-blind.

Every function takes ``{name of the rule: its numbers}`` and gives back the Axes that it drew on: ``ax``, or
new ones sized for a column. The figure is ``ax.figure``; pyplot and its global state are never involved. A
rule keeps its colour, dash and marker in all figures if the dictionaries list the rules in one order.
Accuracies are fractions in [0, 1], NaN for a client without test examples; the axes show percent.
"""

from fedjax_fair.plot.clients import client_histogram, lorenz, partition, sorted_accuracy
from fedjax_fair.plot.contribution import contribution
from fedjax_fair.plot.frontier import frontier, interval
from fedjax_fair.plot.paired import paired_frontier
from fedjax_fair.plot.rounds import accuracy_and_fairness, over_rounds, regret
from fedjax_fair.plot.style import COLOURS, DASHES, MARKERS, RC, WIDTH, paper, save
from fedjax_fair.plot.weights import coefficients, coefficients_by_rule, selections

__all__ = [
    "COLOURS",
    "DASHES",
    "MARKERS",
    "RC",
    "WIDTH",
    "accuracy_and_fairness",
    "client_histogram",
    "coefficients",
    "coefficients_by_rule",
    "contribution",
    "frontier",
    "interval",
    "lorenz",
    "over_rounds",
    "paired_frontier",
    "paper",
    "partition",
    "regret",
    "save",
    "selections",
    "sorted_accuracy",
]
