"""The work of a contribution: coalitions trained from the start, or put together round by round; their shares."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair import metrics
from fedjax_fair.engine.checkpoint import describe, place_of
from fedjax_fair.engine.coalition_store import Kept
from fedjax_fair.engine.coalitions import Course, Value, rounds_of, trainings
from fedjax_fair.engine.progress import asked_to_stop, bar
from fedjax_fair.engine.side_by_side import LARGE, given_width
from fedjax_fair.metrics.kind import Metric
from fedjax_fair.numerics.model_size import bytes_of
from fedjax_fair.numerics.shapley import Game, Shares, by_permutations, exact, leave_one_out, names_of, remembering
from fedjax_fair.types import Key, Simulation

MOST = 20
"""Players of whom all coalitions can be asked for: a million."""
METHODS = ("shapley", "federated-shapley", "leave-one-out")
FEW = 10
"""Players of whom all coalitions are tried by default: 1,024."""
USUAL = 200
"""Permutations of more players by default."""
SIDE_BY_SIDE = 25
"""Small models' coalitions in one block: softmax regressions of 610 weights took 7.7 ms each alone, 2.9 by eights,
2.5 by 25 and 2.2 by 50 on two cores; of wider blocks more stays unused where few permutations walk on."""
TOGETHER = 2**24
"""Bytes of models that are put together from one round's updates at a time: every block trains the cohort again."""


class Estimate(NamedTuple):
    """How shares are made of a game."""

    method: str
    permutations: int | str | None
    """How many; "all" tries every coalition, and so does None where players are few."""
    tolerance: float
    draws: np.random.Generator

    def all_of(self, players: int) -> bool:
        """Whether every coalition is tried."""
        return self.permutations == "all" or (self.permutations is None and players <= FEW)

    @property
    def drawn(self) -> int:
        """How many permutations are drawn where not every coalition is tried."""
        return self.permutations if isinstance(self.permutations, int) else USUAL

    def most(self, players: int) -> int:
        """How many coalitions the game is asked for at the most."""
        if self.method == "leave-one-out":
            return players + 2
        return 2**players if self.all_of(players) else 2 + self.drawn * (players - 1)

    def at_once(self, players: int) -> int:
        """How many of them together."""
        if self.method == "leave-one-out" or self.all_of(players):
            return self.most(players)
        return self.drawn

    def __call__(self, game: Game, players: int) -> Shares:
        """The shares."""
        if self.method == "leave-one-out":
            return leave_one_out(game, players)
        if self.all_of(players):
            return exact(game, players)
        return by_permutations(game, players, self.drawn, self.tolerance, self.draws)


def value_of(measures: Sequence[str], metric: Metric, counts: np.ndarray) -> Value:
    """``every client's metric f[N] -> measures f[M]``, of the clients that count, bool[N]."""

    def value(accuracy: Array) -> Array:
        rows = metrics.summary(accuracy, metric=metric, where=jnp.asarray(counts))
        return jnp.stack([jnp.asarray(rows[measure]) for measure in measures])

    return value


def players_of(method: str, sim: Simulation) -> int:
    """How many play the largest game: all clients, or a round's cohort."""
    selector = (sim.arguments or {})["selector"]
    return sim.data.n_clients if method != "federated-shapley" or selector is None else selector.cohort


def width_of(side_by_side: int | str | None, estimate: Estimate, sim: Simulation) -> int:
    """How many coalitions are vmapped at a time.

    Raises:
      ValueError: ``side_by_side`` is no whole number from 1, None or "auto".
    """
    rounds = estimate.method == "federated-shapley"
    most = estimate.at_once(players_of(estimate.method, sim))
    if (given := given_width(side_by_side, most)) is not None:
        return given
    params = jax.eval_shape(sim.init, jax.random.key(0)).params
    if rounds:
        return min(most, max(1, TOGETHER // bytes_of(params)))
    large = sum(leaf.size for leaf in jax.tree.leaves(params)) > LARGE
    return 1 if large and jax.default_backend() == "cpu" else min(SIDE_BY_SIDE, most)


def by_training(
    estimate: Estimate,
    sim: Simulation,
    value: Value,
    split: str,
    key: Key,
    rounds: int,
    course: Course,
    progress: bool | str | None,
    checkpoint: str | Path | None,
    settings: Mapping[str, Any],
) -> tuple[Shares, int]:
    """Shares of the game in which coalitions train from the start, and how many are asked for, kept ones too."""
    players = sim.data.n_clients
    place = None if checkpoint is None else Kept(place_of(checkpoint), describe(sim, sim.init(key), settings))
    known = {} if place is None else place.load()
    asked: set[bytes] = set()
    shown = bar(progress, estimate.most(players), "coalitions")
    with asked_to_stop(place is not None) as stop, shown as advance:
        game = trainings(sim, value, split, key, rounds, course._replace(advance=advance))

        def keep() -> None:
            if place is not None:
                place.save(known)
                if stop():
                    raise KeyboardInterrupt(f"stopped after {len(known)} coalitions, kept in {checkpoint}")

        at_once = None if place is None else 4 * course.width * course.threads
        remembered = remembering(game, known, at_once, keep)

        def counted(coalitions: np.ndarray) -> np.ndarray:
            asked.update(names_of(coalitions))
            return remembered(coalitions)

        return estimate(counted, players), len(asked)


def by_rounds(
    estimate: Estimate,
    sim: Simulation,
    value: Value,
    split: str,
    key: Key,
    rounds: int,
    course: Course,
    progress: bool | str | None,
) -> tuple[Shares, int]:
    """Shares of the rounds' games, added up, and how many models were judged."""
    total: Shares | None = None
    judged = 0
    with bar(progress, rounds) as advance:
        for ids, game in rounds_of(sim, value, split, key, rounds, course):
            advance(1)
            if not len(ids):  # the model stays, and nobody has a share in that
                continue
            known: dict[bytes, np.ndarray] = {}
            now = estimate(remembering(game, known), len(ids))
            judged += len(known)
            total = _added(total, now, ids, sim.data.n_clients)
    if total is None:
        raise ValueError(f"nobody took part in {rounds} rounds, so there is nothing to share")
    return total._replace(errors=np.sqrt(total.errors)), judged


def _added(total: Shares | None, now: Shares, ids: np.ndarray, n_clients: int) -> Shares:
    """The shares so far and one round's; the errors are squares here, for the rounds' draws are independent."""
    nothing = np.zeros((n_clients, now.values.shape[1]))
    values, squares = (nothing.copy(), nothing.copy()) if total is None else (total.values, total.errors)
    values[ids] += now.values
    squares[ids] += now.errors**2
    first = now.empty if total is None else total.empty
    drawn, cut = (0, 0) if total is None else (total.permutations, total.cut)
    return Shares(values, squares, first, now.grand, max(drawn, now.permutations), cut + now.cut)
