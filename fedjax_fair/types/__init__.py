"""The few types that everything else leans on. All are NamedTuples: immutable, printable, and pytrees.

Those of one client's work are in :mod:`fedjax_fair.types.client`, and have their names here, too.

Letters: ``N`` clients in the federation, ``S`` slots in one round's cohort, ``B`` examples in a batch,
``M`` the largest training set of a client.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import optax
from jax import Array

from fedjax_fair.types.client import Batch as Batch
from fedjax_fair.types.client import Client as Client
from fedjax_fair.types.client import Key, Memory, Objective, Params, State
from fedjax_fair.types.client import LossFn as LossFn
from fedjax_fair.types.client import Trace as Trace
from fedjax_fair.types.client import Train as Train


class Report(NamedTuple):
    """What the ``S`` clients of one round tell the server. Every field has a leading axis ``S``.

    A signal that nothing reads is never computed: the compiler removes it.
    """

    ids: Array
    """i32[S]: which clients; distinct, always."""
    n: Array
    """f32[S]: their training-set sizes, in examples."""
    active: Array
    """bool[S]: False for a client that dropped out, failed or is padding; its coefficient must be 0."""
    loss: Array
    """f32[S]: F_k(w_t), the mean plain loss of the RECEIVED model over the client's training set."""
    train_loss: Array
    """f32[S]: mean over the local steps of the minibatch loss, the weights moving."""
    train_loss_std: Array
    """f32[S]: standard deviation of those minibatch losses (sigma of UCB-CS)."""
    accuracy: Array
    """f32[S]: metric of the RECEIVED model on the client's validation split (the reward of PG-FFL)."""
    gram: Array
    """f32[S, S]: inner products of the updates, ``<update_i, update_j>``."""
    updates: Params
    """``w_k - w_t``, every leaf with a leading axis S."""
    steps: Any = None
    """i32[S]: local steps made, where the trainer counts them (``Trace.steps``)."""
    message: Any = None
    """What they send besides the update (``Memory.message``), leaves [S, ...]; the sum where ``Memory.summed``."""


class Aggregator(NamedTuple):
    """A server rule: from the clients' report to one coefficient per client.

    The server then moves by ``sum_k coef_k * update_k`` (handed, negated, to the server optimiser).
    """

    init: Callable[..., State]
    """``(sizes f32[N], key=None) -> state``."""
    weigh: Callable[[State, Report, Key], tuple[Array, State]]
    """``(state, report, key) -> (coef f32[S], state)``; per-slot noise from ``fold_in(key, id)``.

    Where it takes losses for at least 0, as powers and ratios do, set ``weigh.positive_losses = True``: a run then
    warns of any below. ``weigh.remark = "..."`` is what ``simulation`` warns of: a setting that makes no sense.
    """


class Context(NamedTuple):
    """What a selector may ask the engine for. Asking costs; not asking is free."""

    round: Array
    """i32[]: the round about to be played, from 0."""
    n_clients: int
    """N, a Python integer."""
    probe: Callable[..., Array]
    """``(ids i32[K], key=None, batch=None) -> f32[K]``: loss of the current model on the clients' training
    sets, or on one random minibatch of ``batch`` examples drawn with ``key``."""
    available: Callable[[Array], Array]
    """``(ids i32[K]) -> bool[K]``: who can take part in this round."""
    rule: State = ()
    """The aggregation rule's state: what AFL or DRFA draw their cohorts from."""


class Selector(NamedTuple):
    """A client-selection strategy. ``cohort`` is the static number of slots ``S`` it fills."""

    init: Callable[..., State]
    """``(sizes f32[N], key=None) -> state``."""
    select: Callable[[State, Key, Context], tuple[Array, State]]
    """``(state, key, context) -> (ids i32[S], state)``; the ids are distinct."""
    observe: Callable[[State, Report], State]
    """``(state, report) -> state``: feedback after the round; the identity for strategies without memory."""
    cohort: int
    """S, a Python integer."""


Losses: TypeAlias = Callable[[Params, Array], Array]
"""``(update, ids i32[K]) -> f[K]``: the mean plain loss of the model w + update on the training sets of any
clients; NaN for who is not available in this round."""

Transform: TypeAlias = optax.GradientTransformationExtraArgs


class Method(NamedTuple):
    """A published algorithm: a composition of a server rule, a local objective and a server transform."""

    aggregator: Aggregator
    objective: Callable[[Objective], Objective] | None = None
    """Wraps the client's own objective: FedProx adds its proximal term to whatever the user trains."""
    local: Callable[[Any], Any] | None = None
    """Replaces the trainer: ``trainer -> trainer`` (FedSGD: one full-batch step)."""
    transform: Transform | Callable[[int, int], Transform] | None = None
    """Called with ``report=``, ``coef=`` and ``key=`` on the aggregate, before the server optimiser; or a function
    of N and S that gives it, for one whose memory depends on them."""
    memory: Memory | None = None
    """What clients keep between their rounds, send besides the update and are sent besides the model."""
    revise: Callable[..., tuple[Array, State]] | None = None
    """``(state, coef f[S], report, key, losses) -> (coef f[S], state)``: a second look of the rule, at its own
    state and coefficients before the server moves. ``losses`` is a :data:`Losses`; every call of it costs the
    clients asked a forward pass over their data."""
    selector: Callable[[Selector], Selector] | None = None
    """Replaces the selector: ``selector -> selector`` (DRFA: as many clients, drawn by its own weights)."""


class SimState(NamedTuple):
    """All that the computation carries from round to round; enough to resume bit for bit."""

    round: Array
    """i32[]: rounds played."""
    key: Key
    params: Params
    server: State
    aggregator: State
    selector: State
    memory: Any = None
    """What each client keeps between its rounds, every leaf with a leading axis N; None where nobody keeps any."""


class Info(NamedTuple):
    """What one round leaves in the history."""

    ids: Array
    """i32[S]: the clients of the round; -1 for a slot that the selector left empty."""
    coef: Array
    """f32[S]: the coefficient of each, 0 where it was not active."""
    active: Array
    """bool[S]: whose update was used."""
    loss: Array | None
    """f32[S]: the received model's loss on each client's training set as reported, NaN where it was not active;
    None where the rule reads none."""
    downloads: Array
    """i32[]: clients that were there and were sent the model: to train, or because the selector asked for their
    loss. Those whom a rule's second look asks are not counted."""
    evaluations: Array
    """i32[]: per-example losses that clients evaluated for the selector; a rule's second look is not counted."""


class Evaluation(NamedTuple):
    """Every client's result on one of its splits; NaN for a client whose split is empty, and for all of a model
    that is not finite; ``history.failed`` tells them apart."""

    accuracy: Array
    """f32[..., N]: the metric's mean over the client's examples; of several metrics the first's."""
    loss: Array
    """f32[..., N]: the plain loss's mean over the client's examples."""
    further: dict[str, Array] = {}  # noqa: RUF012
    """By name, f32[..., N] each: the metrics after the first, where there are several."""


class Simulation(NamedTuple):
    """A federation ready to run: pure functions and the data they take as an argument."""

    init: Callable[..., SimState]
    """``(key, data=sim.data) -> state``; other data as for ``step``."""
    step: Callable[[SimState, Any], tuple[SimState, Info]]
    """``(state, data) -> (state, info)``: one round."""
    evaluate: Callable[..., dict[str, Evaluation]]
    """``(params, data) -> {split: evaluation}``; ``(params, data, state.memory)`` where clients keep a memory.
    With ``(params, data, memory, who)``, a mask ``who`` bool[N], the others of a model that all share have NaN."""
    deploy: Callable[[SimState], Params]
    """``state -> params``: the model to evaluate; the last iterate unless the user asked for another."""
    data: Any
    """The :class:`~fedjax_fair.data.FederatedData` that ``step`` and ``evaluate`` expect."""
    positive_losses: bool = False
    """Whether the rule reads losses and takes them for at least 0."""
    faulty: Any = None
    """bool[N]: clients that ``faults`` name, of whom nothing is expected; None for nobody."""
    metric: Any = None
    """The :class:`~fedjax_fair.Metric` of ``evaluate``, of several the first; None for an accuracy."""
    check: Callable[[Any], None] | None = None
    """``data -> None``: ValueError for other data than ``step`` and ``evaluate`` are made for; ``run`` and
    ``sweep`` ask it."""
    reads: tuple[str, ...] = ()
    """The signals of the report that the rule, the server's optimiser or the selector reads."""
    further: Any = None
    """By name, the metrics after the first; None where there is one."""
    arguments: dict[str, Any] | None = None
    """What ``simulation`` was given: ``ff.simulation(**(sim.arguments | {"selector": ff.uniform(5)}))`` is the
    same federation with other cohorts."""
    outputs: dict[str, Callable[..., Any]] | None = None
    """``(params, data, memory) -> outputs`` of a split's examples, for :func:`fedjax_fair.predict`: per split, and
    ``"test@personal"`` where clients have models of their own."""
    coming: Any = None
    """The next cohorts of a selector that learns nothing from the rounds, where the examples are not on the device
    and are so read ahead; None for what is read as it is asked for."""


Weigh = TypeVar("Weigh", bound=Callable[..., Any])


def marked(weigh: Weigh, *, positive_losses: bool = False, remark: str = "", cancels: bool = False) -> Weigh:
    """``weigh`` with what it asks of losses, what is to be said of it, and whether coefficients may sum to 0."""
    vars(weigh).update(positive_losses=positive_losses, remark=remark, cancels=cancels)
    return weigh


def as_method(rule: "Aggregator | Method") -> Method:
    """Pass every rule through one door: an aggregator alone is a method with nothing else."""
    if isinstance(rule, Method):
        return rule
    if isinstance(rule, Aggregator):
        return Method(rule)
    called = getattr(rule, "__name__", "") if callable(rule) else ""
    got = type(rule).__name__ + (f": call it first, as {called}()" if called else "")
    raise ValueError(f"aggregator must be an Aggregator or a Method, such as ff.fedavg(), got {got}")


def server_transform(method: Method, n_clients: int, cohort: int) -> Transform:
    """The method's transform for N clients and cohorts of S; the identity where it has none."""
    if method.transform is None:
        return optax.with_extra_args_support(optax.identity())
    if isinstance(method.transform, optax.GradientTransformation):
        return optax.with_extra_args_support(method.transform)
    return method.transform(n_clients, cohort)


def heard_by_rule(report: Report, memory: Memory | None) -> Report:
    """The report as a rule finds it: without the messages of which only the sum is made."""
    return report._replace(message=None) if memory is not None and memory.summed else report


def message_of(memory: Memory | None, params: Params) -> Any:
    """What a client sends besides the update, in zeros; None for nothing. Only the shapes of ``params`` count."""
    if memory is None or memory.message is None:
        return None
    forms = jax.eval_shape(memory.message, params)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), forms)
