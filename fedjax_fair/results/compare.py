"""Compare rules: the same replicates for all, settings chosen on validation, differences paired."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_fair import metrics
from fedjax_fair.data import FederatedData
from fedjax_fair.data.same_test import same_clients, same_examples
from fedjax_fair.engine.cluster import cluster_of, counted
from fedjax_fair.engine.grid import label, numbered
from fedjax_fair.engine.history import History
from fedjax_fair.results.compare_plan import Asked, Plan, is_tuned, plan, play_task
from fedjax_fair.results.compare_runs import do
from fedjax_fair.results.comparison import Comparison, measured
from fedjax_fair.results.generations import remember
from fedjax_fair.results.rows import rows_of
from fedjax_fair.types import Aggregator, Method, Simulation

Rule = Aggregator | Method


def compare(
    rules: Mapping[str, Rule | Callable[..., Rule]],
    build: Callable[..., Simulation],
    *,
    federation: FederatedData | Callable[[int], FederatedData],
    replicates: int = 5,
    first_seed: int = 0,
    rounds: int = 100,
    eval_every: int = 10,
    last: int = 5,
    baseline: str | None = None,
    tune: Mapping[str, Mapping[str, Iterable[Any]]] | None = None,
    choose: str = "accuracy",
    split: str = "test",
    references: bool = True,
    clients: Any = None,
    side_by_side: int | str | None = "auto",
    threads: int | None = None,
    progress: bool | str | None = None,
    checkpoint: str | Path | None = None,
    every: int | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
) -> Comparison:
    """Run every rule on the same replicates, and say how they differ.

    Replicate r is the federation drawn from seed ``first_seed + r``, trained from that seed: all rules see the same
    clients, initial model and batches, and the same cohorts where selection asks nobody, so that their differences
    are paired. Where a rule is tuned, every point of its grid is run, one is chosen by its mean on the validation
    split, and only that one is read on ``split``.

    .. code-block:: python

       def build(rule, data, lr=0.1):
           return ff.simulation(ff.models.logistic_regression(), data, aggregator=rule, selector=ff.uniform(10),
                                trainer=ff.local_sgd(optax.sgd(lr), batch_size=50), evaluate=("test", "validation"))

       found = ff.compare({"fedavg": ff.fedavg(), "qfedavg": lambda q: ff.qfedavg(q=q, lipschitz=10.0)}, build,
                          federation=lambda seed: ff.data.synthetic(30, 1.0, 1.0, seed=seed), rounds=200,
                          tune={"fedavg": {"lr": [.03, .1, .3]}, "qfedavg": {"q": [.1, 1., 5.]}})
       print(found)

    Args:
      rules: per name a rule, or a factory of one that takes the settings tuned for it (floats as tracers, as in
        ``ff.sweep``). A pair of a rule and something, such as its selector, reaches ``build`` as it is.
      build: ``(rule, data, **settings) -> ff.simulation(...)``; settings of its own, such as ``lr``, may be tuned
        for any rule. It must evaluate ``split``, and "validation" where something is tuned.
      federation: ``seed -> FederatedData``; or one federation, and then the replicates differ by the training seed.
      replicates: how many; differences need two.
      first_seed: of the first replicate. Beyond those that settings were chosen on, replicates are fresh.
      rounds: of every run.
      eval_every: rounds between evaluations.
      last: a measure is the mean over so many last evaluations; of all, where there are fewer.
      baseline: the rule that the others are compared with; by default the first.
      tune: per rule ``{setting: values}``; all combinations are tried. Where each has one value these are given,
        and nothing is chosen. A factory that needs settings must be tuned.
      choose: "accuracy", "worst10", "variance" or "gini" of the validation split, or "accuracy_if_worst10": the
        best accuracy among the points whose worst 10 % are no lower than the baseline's, or the best of these where
        there is none. Among equals accuracy decides. A setting of which a run failed is not chosen, unless there is
        no other: then one of which the fewest did. "gini" needs a metric without negative values.
      split: the one that is quoted.
      references: also train every client alone, for as many rounds as it takes part in on average. And train one
        client that has everybody's training examples, for as many steps as all clients make together. Both have
        the trainer that ``build`` gives the baseline.
      clients: bool[N], the ones to judge by, such as the honest; all by default.
      side_by_side: as in ``ff.sweep``, of runs that share a program.
      threads: programs compiled and run at the same time; by default one for each core of a CPU.
      progress: as in ``ff.run``.
      checkpoint: a folder to keep all runs in; the same comparison goes on from it, also one with rules or
        replicates added. A rule that joins the program of others trains those again.
      every: rounds between checkpoints.
      workers: processes of this machine that share out the programs and replicates, bit for bit as this one would
        run them (needs ``fedjax-fair[cluster]``). In a script the call then stands under
        ``if __name__ == "__main__":``, which each of them runs up to there. How many pieces of work there are is
        said on standard error, unless ``progress=False``.
      scheduler: the address of a Dask scheduler instead, whose workers can import what this process can, and reach
        ``checkpoint``. Work of a worker that dies is given to another one, which goes on from the checkpoint.

    Raises:
      ValueError: an argument that does not fit, before anything is compiled.
      CheckpointError: a ValueError; the folder holds another comparison.
    """
    asked = Asked(
        rules,
        build,
        federation,
        replicates,
        rounds,
        eval_every,
        last,
        baseline,
        tune,
        choose,
        split,
        references,
        clients,
        side_by_side,
        threads,
        progress,
        checkpoint,
        every,
        cluster_of(workers, scheduler),
        first_seed,
    )
    return played(plan(asked))


def played(laid: Plan) -> Comparison:
    """Play what is laid out, choose settings, play the references with them."""
    asked, grids, points, course = laid.asked, laid.grids, laid.points, laid.course
    remember(course.checkpoint, asked.generations or [])
    baseline = asked.baseline or ""
    tuned = [rule for rule in asked.rules if grids[rule]] if is_tuned(grids) else []
    judged = (laid.judge, asked.last, laid.clients)
    told = None if asked.progress is False else _pieces(laid)
    found = do(laid.works, course, play_task, (asked, None), told, partial(_ready, laid))
    histories_of = iter(found[0])
    histories = {rule: [next(histories_of) for _ in points[rule]] for rule in asked.rules}
    tried = {rule: [measured(each, *judged) for each in histories[rule]] for rule in tuned}
    chosen = dict.fromkeys(asked.rules, 0)
    if tuned:
        chosen = _choose(histories, tried, baseline, asked.choose, judged)
    named = {rule: numbered([label(point) for point in points[rule]]) for rule in tuned}
    if asked.references and grids[baseline]:
        rows = (
            None if asked.progress is False else f"{2 * asked.replicates} pieces of the rows (local) and (pooled)"
        )
        found += do([laid.references(chosen[baseline])], course, play_task, (asked, chosen[baseline]), rows)
    comparison = Comparison(
        runs={rule: histories[rule][chosen[rule]] for rule in asked.rules},
        baseline=baseline,
        split=asked.split,
        last=min(asked.last, len(histories[baseline][0][0].rounds)),
        examples=[np.asarray(getattr(data, asked.split.partition("@")[0]).size) for data in laid.datas],
        fixed=isinstance(asked.federation, FederatedData),
        same_examples=same_examples(laid.datas, asked.split.partition("@")[0]),
        choose=asked.choose,
        settings={rule: points[rule][chosen[rule]] for rule in tuned},
        grids={rule: grids[rule] for rule in tuned},
        tried={rule: dict(zip(named[rule], tried[rule])) for rule in tuned},
        tried_runs={rule: dict(zip(named[rule], histories[rule])) for rule in tuned},
        references=found[1] if asked.references else {},
        clients=laid.clients,
        rows=rows_of(asked.rules, {rule: grids[rule] for rule in tuned}, {} if tuned else points),
        first_seed=asked.first_seed,
        same_clients=same_clients(laid.datas),
    )
    return comparison._replace(values=comparison.measures())


def _ready(laid: Plan) -> None:
    """Import and compile what the table is made by, on results that are not there yet."""
    from scipy import special  # noqa: F401

    metric, judged = laid.metric, laid.datas[0].n_clients if laid.clients is None else int(laid.clients.sum())
    evaluations = min(laid.asked.last, -(-laid.course.rounds // laid.course.gap))
    some = np.full((laid.asked.replicates, evaluations, judged), np.clip(0, *metric.range), np.float32)
    metrics.summary(some, metric=metric, where=some == some)
    last = some[:, 0]
    metrics.summary(last, loss=last, metric=metric, where=last == last)


def _pieces(laid: Plan) -> str:
    """What a cluster has to do, with the references that follow once settings are chosen."""
    asked, points = laid.asked, sum(map(len, laid.points.values()))
    tasks = counted(len(laid.works[0].tasks), "piece")
    rows = f" and {2 * asked.replicates} pieces of the rows (local) and (pooled)" * asked.references
    return f"{counted(points * asked.replicates, 'run')} in {tasks}{rows}"


def _choose(
    histories: Mapping[str, list[list[History]]],
    tried: Mapping[str, list[dict[str, np.ndarray]]],
    baseline: str,
    choose: str,
    judged: tuple[str, int, np.ndarray | None],
) -> dict[str, int]:
    """Per rule the place of the chosen point: the best by its mean on validation; of equals the most accurate.

    ``judged`` are the last arguments of :func:`measured`.
    """
    up = 1 if histories[baseline][0][0].metric.higher_is_better else -1
    sign = {"accuracy": up, "worst10": up, "gini": -1, "variance": -1}

    def scores(rule: str, measure: str) -> np.ndarray:
        of = np.array([sign[measure] * point[measure] for point in tried[rule]])
        means = of.mean(1)  # NaN where a run failed: such a setting is not chosen
        if np.isnan(means).all():  # unless there is no other: then one of which the fewest did
            lost = np.isnan(of).sum(1)
            known = np.where(np.isnan(of), 0, of).sum(1) / np.maximum(of.shape[1] - lost, 1)
            means = np.where((lost == lost.min()) & (lost < of.shape[1]), known, np.nan)
        return np.where(np.isnan(means), -np.inf, means)

    def best(rule: str, first: np.ndarray) -> int:
        points = scores(rule, "accuracy")  # none is finite where all runs failed
        return int(np.lexsort((points, first))[-1]) if np.isfinite(points).any() else 0

    chosen = dict.fromkeys(histories, 0)
    if choose != "accuracy_if_worst10":
        return chosen | {rule: best(rule, scores(rule, choose)) for rule in tried}
    if baseline in tried:
        chosen[baseline] = best(baseline, scores(baseline, "accuracy"))
    floor = up * measured(histories[baseline][chosen[baseline]], *judged)["worst10"].mean()
    for rule in [rule for rule in tried if rule != baseline]:
        fair = scores(rule, "worst10") >= floor  # where none is fair enough, the fairest
        chosen[rule] = best(
            rule, np.where(fair, scores(rule, "accuracy"), -np.inf if fair.any() else scores(rule, "worst10"))
        )
    return chosen
