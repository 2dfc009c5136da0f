"""Every player's share of a game: exact, by permutations, or by leaving one out."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Game = Callable[[np.ndarray], np.ndarray]
"""``coalitions bool[C, N] -> values f64[C, M]``: what each is worth, by M measures."""

STREAK = 5
"""A permutation is cut off behind more coalitions in a row than this that are worth what all are: one may be by
chance."""


class Shares(NamedTuple):
    """What the N players of a game contribute, by M measures."""

    values: np.ndarray
    """f64[N, M]"""
    errors: np.ndarray
    """f64[N, M]: their standard errors over the permutations; 0 where the shares are exact."""
    empty: np.ndarray
    """f64[M]: what nobody is worth."""
    grand: np.ndarray
    """f64[M]: what all are worth."""
    permutations: int = 0
    """How many were drawn."""
    cut: int = 0
    """How many of them were cut off."""


def exact(game: Game, players: int) -> Shares:
    r"""Shapley's value, by all :math:`2^N` coalitions.

    .. math:: \phi_k = \sum_{S \not\ni k} \frac{|S|!\,(N - |S| - 1)!}{N!}\,\big(v(S \cup k) - v(S)\big)

    Source: Shapley, A value for n-person games, 1953.

    >>> exact(lambda coalitions: coalitions.sum(1, keepdims=True) ** 2.0, 2).values.tolist()
    [[2.0], [2.0]]
    """
    every = np.arange(2**players)
    members = (every[:, None] >> np.arange(players)) & 1 > 0
    worth, sizes = game(members), members.sum(1)
    ways = np.ones(players)  # 1 / (N choose |S|) / (N - |S|), which is |S|! (N - |S| - 1)! / N!
    for size in range(players):
        ways[size] = 1 / players if not size else ways[size - 1] * size / (players - size)
    values = np.empty((players, worth.shape[1]))
    for k in range(players):
        without = every[~members[:, k]]
        values[k] = ways[sizes[without]] @ (worth[without | 1 << k] - worth[without])
    return Shares(values, np.zeros_like(values), worth[0], worth[-1])


def by_permutations(
    game: Game, players: int, permutations: int, tolerance: float, draws: np.random.Generator
) -> Shares:
    r"""Shapley's value by Monte Carlo: what a player adds to those before it, mean over random orders of all.

    The permutations walk side by side: the game is asked for all coalitions of one size at a time. One is cut off,
    and who comes later adds nothing there, behind more than STREAK coalitions in a row that are, by every measure,
    no further than ``tolerance`` times :math:`|v(N) - v(\emptyset)|` from :math:`v(N)`; 0 never cuts.

    Source: Ghorbani, Zou, Data Shapley, ICML 2019, algorithm 1; the count of coalitions in a row is the authors'
    code's. Differs from both in: the tolerance is a share of what all players add, not of what they are worth.
    """
    empty, grand = game(np.stack([np.zeros(players, bool), np.ones(players, bool)]))
    orders = draws.permuted(np.tile(np.arange(players), (permutations, 1)), axis=1)
    near = tolerance * np.abs(grand - empty)
    members = np.zeros((permutations, players), bool)
    before = np.tile(empty, (permutations, 1))
    samples = np.zeros((permutations, players, len(empty)))
    streak, walking = np.zeros(permutations, int), np.arange(permutations)
    for place in range(players):
        who = orders[walking, place]
        members[walking, who] = True
        now = game(members[walking])
        samples[walking, who] = now - before[walking]
        before[walking] = now
        there = (np.abs(now - grand) <= near).all(1) & (tolerance > 0)
        streak[walking] = np.where(there, streak[walking] + 1, 0)
        if place == players - 1:
            break
        walking = walking[streak[walking] <= STREAK]
        if not walking.size:
            break
    errors = samples.std(0, ddof=1) / np.sqrt(permutations)
    return Shares(samples.mean(0), errors, empty, grand, permutations, permutations - len(walking))


def leave_one_out(game: Game, players: int) -> Shares:
    r""":math:`v(N) - v(N \setminus k)`, by N + 2 coalitions; these do not add up to :math:`v(N) - v(\emptyset)`."""
    without = ~np.eye(players, dtype=bool)
    worth = game(np.concatenate([np.zeros((1, players), bool), np.ones((1, players), bool), without]))
    return Shares(worth[1] - worth[2:], np.zeros((players, worth.shape[1])), worth[0], worth[1])


def remembering(
    game: Game,
    known: dict[bytes, np.ndarray],
    at_once: int | None = None,
    keep: Callable[[], None] = lambda: None,
) -> Game:
    """The game, which is asked once for every coalition; ``known`` are the answers so far, by :func:`names_of`.

    It is asked for ``at_once`` at most, None for any number; ``keep`` is called behind every answer.
    """

    def asked(coalitions: np.ndarray) -> np.ndarray:
        names = names_of(coalitions)
        new = [*{name: row for row, name in enumerate(names) if name not in known}.values()]
        for first in range(0, len(new), at_once or max(1, len(new))):
            rows = new[first : first + (at_once or len(new))]
            known.update(zip([names[row] for row in rows], game(coalitions[rows])))
            keep()
        return np.stack([known[name] for name in names])

    return asked


def names_of(coalitions: np.ndarray) -> list[bytes]:
    """What each coalition is known by: its mask, eight players a byte."""
    return [row.tobytes() for row in np.packbits(coalitions, axis=1)]
