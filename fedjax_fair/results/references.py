"""What a comparison is measured against: every client that trains alone, and one that has everybody's examples."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.aggregators.fedavg import fedavg
from fedjax_fair.checks import takes
from fedjax_fair.data import FederatedData
from fedjax_fair.engine.freezing import freezing
from fedjax_fair.engine.history import History, judged, told
from fedjax_fair.engine.precision import computing
from fedjax_fair.engine.training import cohort_training, local_work
from fedjax_fair.local.remembering import within
from fedjax_fair.local.sgd import LocalSGD
from fedjax_fair.metrics.significance import ROUNDING
from fedjax_fair.models import as_model
from fedjax_fair.numerics.model_size import is_tiny
from fedjax_fair.numerics.xla_options import TINY_QUICK, Compiled, compiled, of_rounds
from fedjax_fair.types import Evaluation, Key, Method, Params, Simulation, Train, as_method

Scores = dict[str, Evaluation]


class Reference(NamedTuple):
    """Plain training of single clients, compiled once for all of them and all federations of one form."""

    trained: Compiled
    """``(key, client, stretches, of, data) -> {split: evaluations}``, compiled."""

    def train(
        self,
        key: Key,
        client: int,
        stretches: np.ndarray,
        of: int,
        data: FederatedData,
        compiled: Callable[[], None] = lambda: None,
    ) -> Scores:
        """Results with the model that this client trains, [L, N] NumPy arrays: after each stretch.

        A client of the federation is its model's only judge, and the others' results are NaN. Where its loss is
        NaN, so are its metrics, as of personal models. A model of everybody's examples is judged by everybody.

        ``stretches`` are L numbers of rounds. A schedule runs through the federation's ``of`` rounds meanwhile.
        ``compiled`` is called as soon as the program is there, and plays.
        """
        played = self.trained(key, client, stretches, of, data)
        compiled()
        found: Scores = jax.device_get(played)
        return found


def reference(sim: Simulation, data: FederatedData) -> Reference:
    """The training of ``sim`` without a federation: its model, its trainer, on clients of ``data`` or smaller ones.

    Its loss is ``sim``'s, without what a method adds to it; nothing is averaged, absent or false. A federation's
    limit on steps is not one of the client that has everybody's examples, if ``data`` has it.
    """
    given = _arguments(sim)
    net, loss, sizes = as_model(given["model"]), given["loss"], data.sizes
    shapes = jax.eval_shape(sim.init, jax.random.key(0)).params
    frozen = freezing(given["freeze"], shapes)
    judges = sim.data.n_clients  # a union is a client that trains, and not one of those who are scored
    trainer = trainer_of(sim)
    if len(sizes) > judges and isinstance(trainer, LocalSGD):
        trainer = trainer._replace(limit=None)

    def judging(who: Array) -> tuple[Any, ...]:
        return (None, who) if takes(sim.evaluate, 4) else ()  # a user's own evaluation may judge by all

    def trained(key: Key, client: Array, stretches: Array, of: Array, data: FederatedData) -> Scores:
        begun, total = sim.init(key, sim.data), stretches.sum()
        places = jnp.arange(data.n_clients)
        who = (places < judges) & ((places == client) | (client >= judges))
        start, rest = frozen.split(begun.params)
        train, objective = local_work(frozen.holding(net, rest), Method(fedavg()), trainer, loss)
        work = cohort_training(train, objective, sizes, 1, None).stacked

        def one(i: Array, params: Params) -> Params:
            round = (i / total * of).astype(jnp.int32)  # of the federation's: what a schedule goes by
            sent = work(params, data, client[None], jax.random.fold_in(begun.key, i), round)
            return jax.tree.map(lambda w, update: w + update[0], params, sent.update)

        def stretch(carry: tuple[Array, Params], rounds: Array) -> tuple[tuple[Array, Params], Scores]:
            played, params = carry
            params = jax.lax.fori_loop(played, played + rounds, one, params)
            found = sim.evaluate(frozen.whole(params, rest), data, *judging(who))
            return (played + rounds, params), jax.tree.map(lambda values: values[:judges], found)

        return jax.lax.scan(stretch, (jnp.zeros((), stretches.dtype), start), stretches)[1]

    precise = computing(given["precision"], trained)
    options = [(TINY_QUICK, lambda *_: is_tiny(shapes)), *of_rounds(lambda *_: shapes)]
    return Reference(compiled(precise, options))


def trainer_of(sim: Simulation) -> Train:
    """What clients train by: the simulation's trainer, with the rule's own epochs, steps and batches (FedSGD's one
    step a round, also inside a method around it), and without what else a method adds."""
    trainer: Train = _arguments(sim)["trainer"]
    local = as_method(_arguments(sim)["aggregator"]).local
    inner = within(trainer if local is None else local(trainer))
    if not isinstance(inner, LocalSGD) or not isinstance(trainer, LocalSGD):
        return trainer
    return trainer._replace(epochs=inner.epochs, steps=inner.steps, batch_size=inner.batch_size)


def needs_its_own(sim: Simulation) -> bool:
    """Whether local training shares no program with that of all examples: a step on a full batch has room for the
    largest client's, of which all have N times as many; and a limit on steps holds for clients alone."""
    trainer = trainer_of(sim)
    return isinstance(trainer, LocalSGD) and (trainer.batch_size is None or trainer.limit is not None)


def rounds_alone(sim: Simulation, rounds: int) -> int:
    """In how many rounds a client takes part on average, at least one."""
    return max(1, round(rounds * _cohort(sim) / sim.data.n_clients))


def rounds_pooled(sim: Simulation, rounds: int) -> int:
    """In how many rounds the pooled client makes as many steps as all clients of the federation do together.

    A limit on steps does not count. A trainer of the user's own is taken to make steps in proportion to a client's
    examples.
    """
    trainer, sizes = trainer_of(sim), sim.data.sizes
    if isinstance(trainer, LocalSGD) and (trainer.steps is not None or trainer.batch_size is None):
        share = 1.0  # as many steps, however many examples
    elif isinstance(trainer, LocalSGD):
        share = float(np.mean(-(-sizes // trainer.batch_size)) / -(-sizes.sum() // trainer.batch_size))
    else:
        share = 1 / len(sizes)
    return max(1, round(rounds * _cohort(sim) * share))


def stretches(rounds: int, gap: int, last: int) -> np.ndarray:
    """i32[L]: rounds before each of the last evaluations, ``gap`` apart, of which there are at most ``last``.

    >>> stretches(67, 3, 5).tolist()
    [55, 3, 3, 3, 3]
    """
    count = min(last, (rounds - 1) // gap + 1)
    return np.array([rounds - (count - 1) * gap, *[gap] * (count - 1)], np.int32)


def as_history(results: Sequence[Scores], lengths: np.ndarray, sim: Simulation) -> History:
    """The last evaluations as a history: all of the only training, [L, N], or of N each client's own, [L]."""
    whole = jax.tree.leaves(results[0])[0].ndim > 1
    scores: Scores = results[0] if whole else jax.tree.map(lambda *own: np.stack(own, axis=1), *results)
    rounds = int(lengths.sum())
    nobody, counts = np.zeros((rounds, 0), np.int32), np.zeros(rounds, np.int32)
    ends = np.cumsum(lengths)
    history = History(ends, scores, nobody, nobody.astype(float), nobody > 0, None, counts, counts)
    return told(history, sim)


def better_off(run: History, alone: History, split: str, last: int) -> float:
    """Per cent of the clients that a model serves better than the one they train alone; ties count half.

    By their mean over the last evaluations. Clients without examples do not count, nor those for whom the metric
    has no value under either model, such as an F1 of nobody told the class.
    """
    mine = np.asarray(run.scores[split].accuracy, float)[-last:].mean(0)
    other = np.asarray(alone.scores[split].accuracy, float)[-last:].mean(0)
    sign = 1 if run.metric.higher_is_better else -1
    known = judged(alone, split)[-last:].all(0) & judged(run, split)[-last:].all(0)
    there, was = np.isfinite(mine), np.isfinite(other)  # a model that failed is worse than any
    gains = np.where(there & was, sign * (np.where(there, mine, 0) - np.where(was, other, 0)), there * 1.0 - was)
    # Means of equal counts may differ in the last bits.
    size = np.maximum(np.abs(np.where(there, mine, 0)), np.abs(np.where(was, other, 0)))
    gains = np.where(np.abs(gains) <= ROUNDING * size, 0, gains)[known]
    return float(100 * np.mean(np.where(gains == 0, 0.5, gains > 0))) if known.any() else float("nan")


def _cohort(sim: Simulation) -> int:
    selector = _arguments(sim)["selector"]
    return sim.data.n_clients if selector is None else int(selector.cohort)


def _arguments(sim: Simulation) -> dict[str, Any]:
    if sim.arguments is None:
        raise ValueError(
            "references are for what ff.simulation(...) makes, got a Simulation put together otherwise: "
            "pass references=False"
        )
    return sim.arguments
