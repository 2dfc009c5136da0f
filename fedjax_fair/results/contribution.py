"""Every client's share of accuracy and of fairness: what it adds to the coalitions that it may join."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_fair.checks import check_choice, check_count, check_range, check_takes
from fedjax_fair.data import FederatedData
from fedjax_fair.engine.coalitions import Course
from fedjax_fair.engine.keys import as_key
from fedjax_fair.engine.tasks import threads_for
from fedjax_fair.engine.watch import say
from fedjax_fair.metrics.kind import described
from fedjax_fair.results.compare_arguments import check_build, check_clients, draw
from fedjax_fair.results.contribution_runs import (
    METHODS,
    MOST,
    Estimate,
    by_rounds,
    by_training,
    players_of,
    value_of,
    width_of,
)
from fedjax_fair.results.differences import MEASURES
from fedjax_fair.results.shares import Contribution, check_measures
from fedjax_fair.types import Simulation


def contribution(
    build: Callable[[FederatedData], Simulation],
    federation: FederatedData | Callable[[int], FederatedData],
    *,
    method: str = "shapley",
    measures: Sequence[str] = MEASURES,
    permutations: int | str | None = None,
    tolerance: float = 0.01,
    rounds: int = 100,
    seed: int = 0,
    split: str = "test",
    clients: Any = None,
    side_by_side: int | str | None = "auto",
    threads: int | None = None,
    progress: bool | str | None = None,
    checkpoint: str | Path | None = None,
) -> Contribution:
    r"""Every client's share of what training together changes, in accuracy and in fairness.

    A coalition S is the same federation, from the same initial model and key, in which all other clients are
    absent in every round. It is worth :math:`v(S)`, a measure of what its last model gives to ALL clients. The
    initial model is worth :math:`v(\emptyset)`. Coalitions are masks that one compiled program takes; all measures
    come from the same trainings. A client's share is, by ``method``,

    * "shapley": :math:`\phi_k = \frac1{N!} \sum_\pi v(\pi_{<k} \cup k) - v(\pi_{<k})`, the mean of what k adds to
      those before it, over all orders :math:`\pi`. Every coalition trains. Shares add up to
      :math:`v(N) - v(\emptyset)`.
    * "federated-shapley": the same within each round t of one training, added up over the rounds: a coalition of
      the round's cohort is worth the measure of the model that the server makes of its updates alone. Who is
      not selected gets nothing for the round. The server's next model is that of the whole cohort. It
      costs one training, and judges models.
    * "leave-one-out": :math:`v(N) - v(N \setminus k)`, by N + 2 trainings. These do not add up to anything.

    .. code-block:: python

       found = ff.contribution(lambda data: ff.simulation(ff.models.logistic_regression(), data,
                                   aggregator=ff.fedavg(), trainer=ff.local_sgd(optax.sgd(.1), batch_size=50)),
                               ff.data.synthetic(6, 1.0, 1.0, seed=0), rounds=20)
       print(found)  # found.shares["accuracy"], .intervals(), .to_pandas(), .save(folder)

    Args:
      build: ``data -> ff.simulation(...)``; coalitions are made of the arguments that it gave, ``sim.arguments``.
        A selector that draws from all clients, as ``ff.uniform(m)`` does, draws the same for every coalition, which
        leaves less to chance than one that asks who is there.
      federation: one federation, or ``seed -> FederatedData``, as for ``ff.compare``, whose replicate r has seed r.
      method: "shapley", "federated-shapley" or "leave-one-out".
      measures: of :func:`fedjax_fair.metrics.summary`, in its units and with its signs: of "variance", "std" and
        "gini" a share below 0 is a good one.
      permutations: of Monte Carlo. By default all coalitions of up to 10 clients (of "federated-shapley", of a
        cohort) are tried, which is exact, and 200 permutations of more; "all" tries all of up to 20 clients.
      tolerance: a permutation is cut off, and the clients behind add nothing there, after more than 5 coalitions
        in a row near the end: all measures are closer to those of all clients than this share of what all add.
        The shares of a measure then add up to its gain within that share. 0 cuts nothing. Of Monte Carlo alone.
      rounds: of every training.
      seed: of the training, as in ``ff.run``, and of the permutations.
      split: the one that the clients are judged by.
      clients: bool[N], whom to judge by, such as the honest; all by default.
      side_by_side: how many coalitions are vmapped at a time; "auto": 25, or one of a model of more than 20,000
        parameters that trains on a CPU; None for as many as are asked for at once.
      threads: blocks of these computed at the same time; by default one for each core of a CPU.
      progress: as in ``ff.run``, counted in coalitions (of "federated-shapley", in rounds).
      checkpoint: a folder to keep the coalitions in that were trained; the same call goes on from it. Those that
        were trained with another ``side_by_side`` agree with its own to rounding.

    Raises:
      ValueError: an argument that does not fit, before anything is compiled.
      CheckpointError: a ValueError; the folder holds other coalitions, or cannot be written or read.

    Source: Shapley, A value for n-person games, 1953; Monte Carlo: Ghorbani, Zou, Data Shapley: Equitable Valuation
    of Data for Machine Learning, ICML 2019; by rounds: Wang, Rausch, Zhang, Jia, Song, A Principled Approach to
    Data Valuation for Federated Learning, 2020. Differs from the former in: the tolerance is a share of what all
    add, and holds for all measures at once. Differs from the latter in: a coalition's coefficients are those that
    the rule gives its members, so that any rule can be judged, where theirs are a plain mean.
    """
    check_choice("method", method, METHODS)
    names = check_measures(measures)
    check_range("tolerance", tolerance, 0, 1, open_high=True)
    rounds, seed = check_count("rounds", rounds), check_count("seed", seed, low=0, high=2**32 - 1)
    _check_method(method, permutations, checkpoint)
    if threads is not None:
        check_count("threads", threads)
    data = _drawn(federation, seed)
    if not callable(build):
        raise ValueError(f"build must be a function data -> ff.simulation(...), got {build!r}")
    check_takes("build", build, "data")
    sim = check_build("the federation", lambda: build(data), data, {}, {split})
    _check_simulation(sim)
    if permutations == "all" and (players := players_of(method, sim)) > MOST:
        raise ValueError(f"permutations='all' is for up to {MOST} clients, 2^{MOST} coalitions, got {players}")
    counts = np.asarray(getattr(data, split.partition("@")[0]).size) > 0
    if (who := check_clients(clients, data.n_clients)) is not None:
        counts = counts & who
    if not counts.any():
        raise ValueError(f"clients must be True for someone with examples in the {split} split, got nobody")
    estimate = Estimate(method, permutations, tolerance, np.random.default_rng(seed))
    value = value_of(names, described(sim.metric), counts)
    course = Course(width_of(side_by_side, estimate, sim), threads_for(threads), lambda count: None)
    key = as_key(seed)
    if method == "federated-shapley":
        found, coalitions = by_rounds(estimate, sim, value, split, key, rounds, course, progress)
    else:
        settings = {"rounds": rounds, "split": split, "measures": [*names], "judged": counts.tolist()}
        settings |= {"metric": str(described(sim.metric))}  # by its direction and unit the measures are taken
        training = partial(by_training, checkpoint=checkpoint, settings=settings)
        found, coalitions = training(estimate, sim, value, split, key, rounds, course, progress)
    if not np.isfinite(found.values).all():
        say(["shares are NaN where a coalition's model, or a client's metric by it, is not finite"])
    return Contribution(
        shares=dict(zip(names, found.values.T)),
        errors=dict(zip(names, found.errors.T)),
        empty=dict(zip(names, map(float, found.empty))),
        grand=dict(zip(names, map(float, found.grand))),
        method=method,
        split=split,
        rounds=rounds,
        permutations=found.permutations,
        cut=found.cut,
        coalitions=coalitions,
        metric=described(sim.metric),
        clients=getattr(sim.data, "clients", None),
    )


def _check_method(method: str, permutations: Any, checkpoint: Any) -> None:
    if permutations is not None and method == "leave-one-out":
        raise ValueError(f"permutations are of Shapley's methods, not of leave-one-out, got {permutations!r}")
    if isinstance(permutations, str):
        check_choice("permutations", permutations, ["all"])
    elif permutations is not None:
        check_count("permutations", permutations, low=2)
    if checkpoint is not None and not isinstance(checkpoint, str | Path):
        raise ValueError(f"checkpoint must be a folder, got {checkpoint!r}")
    if checkpoint is not None and method == "federated-shapley":
        raise ValueError("checkpoint keeps coalitions that trained, and federated-shapley trains once, got both")


def _drawn(federation: Any, seed: int) -> FederatedData:
    """The federation, or the one of this seed."""
    if isinstance(federation, FederatedData) or not callable(federation):
        return draw(federation, 1)[0]
    return draw(lambda _: federation(seed), 1)[0]


def _check_simulation(sim: Simulation) -> None:
    """A simulation of which coalitions can be made."""
    if sim.arguments is None:
        raise ValueError("build must return what ff.simulation(...) made, got a simulation without arguments")
    if sim.arguments["devices"] != 1:
        raise ValueError(f"build must leave the clients on one device, got devices={sim.arguments['devices']!r}")
    if sim.check is not None:
        sim.check(sim.data)
