"""One round of federated learning as a pure function, and everything it needs put together and checked."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import Mesh

from fedjax_fair import blocks, losses, setup, signals
from fedjax_fair.availability import Available, PerClient, always
from fedjax_fair.checks import check_choice
from fedjax_fair.cohort import cohort_training, weighted_sum
from fedjax_fair.data import FederatedData
from fedjax_fair.defences import check_descends
from fedjax_fair.devices import added, as_mesh, everywhere, gather, part, replicate, share
from fedjax_fair.failures import drop_coefficients, drop_failures
from fedjax_fair.faults import Fault, check_faults, misreport_losses
from fedjax_fair.models import as_model
from fedjax_fair.reads import reads
from fedjax_fair.selectors import uniform
from fedjax_fair.types import (
    Aggregator,
    Context,
    Evaluation,
    Info,
    Key,
    Method,
    Params,
    Report,
    Selector,
    SimState,
    Simulation,
    Train,
    as_method,
    server_transform,
)
from fedjax_fair.weighing import REVEALED, after_training, before_training, serve, weigh_first


def simulation(
    model: Any,
    data: FederatedData,
    *,
    aggregator: Aggregator | Method,
    trainer: Train,
    selector: Selector | None = None,
    server_optimizer: optax.GradientTransformation | None = None,
    available: Available | PerClient = always,
    faults: Sequence[Fault] = (),
    loss: setup.PerExample = losses.softmax_cross_entropy,
    metric: setup.PerExample = losses.accuracy,
    evaluate: Sequence[str] = ("test",),
    deploy: Callable[[SimState], Params] | None = None,
    client_block: int | str | None = "auto",
    eval_batch: int | None = None,
    precision: setup.Precision = "highest",
    devices: int | Mesh = 1,
) -> Simulation:
    r"""Put a federation together: ``sim.init(key) -> state``, ``sim.step(state, sim.data) -> (state, info)``.

    One round: the selector picks the cohort S; every client of it trains from the received model w; the rule
    turns their report into coefficients c; the server moves by

    .. math:: w \leftarrow \text{server optimizer}\big(w,\ -\sum_{k \in S} c_k\,(w_k - w)\big)

    A client whose update, or any signal that the rule or the server's optimiser reads, is not finite becomes
    inactive: its coefficient is 0 and its update never enters a sum. ``sim.step`` is made for the clients' sizes in
    ``data``: other data, ``sim._replace(data=...)``, must have the same.

    Args:
      model: a stock model, a flax module or an ``(init, apply)`` pair; see :func:`fedjax_fair.models.as_model`.
      data: the federation.
      aggregator: a server rule, or a whole method such as ``ff.fedprox()``.
      trainer: the local work, ``ff.local_sgd(...)`` or any function of the form of ``types.Train``.
      selector: who takes part; everybody by default.
      server_optimizer: optax optimiser of the server; ``optax.sgd(1.)`` by default.
      available: who can take part in which round, such as ``ff.availability.bernoulli(.8)``; everybody by default.
        A selected client that is absent sends nothing, and to a probe answers NaN.
      faults: clients that lie or fail, such as ``[ff.faults.inflate_loss(liars)]``.
      loss: per-example loss ``(outputs, y) -> f[B]``.
      metric: per-example metric, likewise; reported as accuracy.
      evaluate: the splits that ``sim.evaluate`` scores, the first being the one that the history leads with.
      deploy: the model to evaluate, of a state; the last iterate by default, ``ff.averaged`` for the mean of all.
      client_block: how many clients train side by side, vmapped: None for all, 1 for one after another, or a number
        in between. "auto": on an accelerator all. On a CPU two at a time in one loop, not vmapped, on one device
        and where the model has dense layers only and more than 2^15 entries, but at most 1 MB; else one after
        another where it has convolutions or the clients' sizes differ much (vmapped clients all wait for the
        largest); else as many as have models of 256 kB together.
      eval_batch: examples per forward pass wherever all clients share a model; by default 512, or 4,096 for a model
        of vectors and matrices below 2^15 entries, whose products are shorter than the loop around them.
      precision: of the models' matrix products where the hardware has a choice: "highest" is float32, "high"
        and "default" are faster and coarser (TF32 or bfloat16 on a GPU or TPU; a CPU knows only float32). The
        rule and the server always compute in the highest.
      devices: how many of JAX's devices share the cohort, or a mesh of one axis; see :mod:`fedjax_fair.devices`.

    Raises:
      ValueError: an argument that does not fit, before anything expensive starts.
    """
    setup.check_types(data, server_optimizer, loss, metric)
    mesh = as_mesh(devices)
    net, method = as_model(model), as_method(aggregator)
    selector = uniform(data.n_clients) if selector is None else selector
    setup.check_cohort(selector, data.n_clients)
    setup.check_select(selector, data.n_clients)
    setup.check_available(available, data.n_clients)
    faults = check_faults(faults, data.n_clients)
    if deploy is not None and not callable(deploy):
        raise ValueError(f"deploy must be a function of the state, such as ff.averaged, got {deploy!r}")
    splits = setup.check_splits(evaluate, data)
    check_choice("precision", precision, get_args(setup.Precision))
    train, local_loss = setup.local_work(net, method, trainer, loss)
    example = jax.eval_shape(lambda: data.take(jnp.zeros((1,), jnp.int32))[0])
    shapes = jax.eval_shape(net.init, jax.random.key(0), example)
    eval_batch = setup.choose_eval_batch(eval_batch, shapes)
    setup.check_outputs(net, shapes, data, loss, metric)
    setup.check_weigh(method.aggregator, data.n_clients, selector.cohort, shapes)
    server = optax.chain(
        server_transform(method, data.n_clients, selector.cohort),
        optax.sgd(1.0) if server_optimizer is None else server_optimizer,
    )
    check_descends(server, shapes, selector.cohort)
    listening = method._replace(transform=server)  # the server's optimiser may read the report, too
    read = reads(listening, selector, n_clients=data.n_clients, cohort=selector.cohort, params=shapes)
    if "accuracy" in read and not data.validation.rows.shape[0]:
        raise ValueError("accuracy is read, but the data has no validation split: give split a second share")
    weigh, update = setup.computing("highest", method.aggregator.weigh), setup.computing("highest", server.update)
    largest, largest_validation = int(data.sizes.max()), int(np.asarray(data.validation.size).max())
    count = part(selector.cohort, mesh)
    block = blocks.choose_block(client_block, count, shapes, data.sizes)
    shared = mesh is None and count > 1  # a device per core has no other to share
    abreast = blocks.choose_abreast(client_block, train, net, shapes, example) if shared else None
    training = cohort_training(train, local_loss, data.sizes, block, abreast, faulty=bool(faults))
    summed = training.summed if REVEALED.isdisjoint(read) else None
    scores, just_loss, just_metric = (setup.scoring(net, *of) for of in ((metric, loss), (loss,), (metric,)))

    def init(key: Key) -> SimState:
        model_key, rule_key, selector_key, run_key = jax.random.split(key, 4)
        sizes = data.train.size.astype(jnp.result_type(float))
        params = net.init(model_key, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), example))
        start = SimState(
            round=jnp.zeros((), jnp.int32),
            key=run_key,
            params=params,
            server=server.init(params),
            aggregator=method.aggregator.init(sizes, rule_key),
            selector=selector.init(sizes, selector_key),
        )
        return replicate(start, mesh)

    def received_loss(params: Params, data: FederatedData, ids: Array) -> Array:
        return signals.cohort(just_loss, params, data, data.train, ids, eval_batch, largest, mesh)[0]

    def validated(params: Params, data: FederatedData, ids: Array) -> Array:
        split, capacity = data.validation, largest_validation
        return signals.cohort(just_metric, params, data, split, ids, eval_batch, capacity, mesh)[0]

    def step(state: SimState, data: FederatedData) -> tuple[SimState, Info]:
        round_key = jax.random.fold_in(state.key, state.round)
        select_key, train_key, weigh_key, probe_key = jax.random.split(round_key, 4)
        present_key, fault_key = jax.random.split(jax.random.fold_in(round_key, 4))
        server_key = jax.random.fold_in(round_key, 5)

        def present(ids: Array) -> Array:
            return available(present_key, state.round, ids)

        asked: list[tuple[Array, Array]] = []  # who answered the selector, and for how many losses: its cost

        def probe(ids: Array, key: Key | None = None, batch: int | None = None) -> Array:
            there = present(ids)
            if batch is None:
                losses = data.train.size[ids]
                answers = received_loss(state.params, data, ids)
            else:
                losses = jnp.full(ids.shape, batch, jnp.int32)
                drawn_with = probe_key if key is None else key
                answers = signals.minibatch(just_loss, state.params, data, ids, drawn_with, batch, mesh)[0]
            asked.append((jnp.where(there, ids, -1), jnp.where(there, losses, 0).sum()))
            return jnp.where(there, misreport_losses(answers, ids, faults, fault_key, state.params), jnp.nan)

        context = Context(state.round, data.n_clients, probe, present)
        ids, chosen = setup.check_ids(selector.select(state.selector, select_key, context), selector.cohort)
        known = setup.valid_ids(ids, data.n_clients)
        ids = jnp.clip(ids, 0, data.n_clients - 1)
        there = present(ids) & known
        report = before_training(
            ids=ids,
            n=data.train.size[ids].astype(jnp.result_type(float)),
            active=there,
            loss=received_loss(state.params, data, ids),
            accuracy=validated(state.params, data, ids),
            params=state.params,
        )

        def judge(report: Report) -> tuple[Report, Array, Any]:
            answer = weigh(state.aggregator, report, weigh_key)
            coef, weights = setup.check_weights(answer, selector.cohort, state.aggregator)
            return *drop_coefficients(report, coef), weights

        local = (state.params, data, share(ids, mesh, "edge"), train_key, state.round)
        if summed is None:
            report, updates, arrived = after_training(report, training.stacked(*local), faults, fault_key, mesh)
            report, coef, weights = judge(drop_failures(report, read, arrived))
            mine = share(coef, mesh)
            total = jax.tree.map(lambda u: weighted_sum(mine, u), updates)
        else:

            def train_and_add(coef: Array) -> tuple[Params, Array]:
                total, arrived = summed(*local, share(coef, mesh))
                return total, gather(arrived, selector.cohort, mesh)

            report = drop_failures(report, read, report.active)
            report, coef, weights, total = weigh_first(report, judge, train_and_add, state.aggregator, state.params)
        params, server_state = serve(update, state, added(total, mesh), report, coef, server_key)
        after = SimState(
            round=state.round + 1,
            key=state.key,
            params=params,
            server=server_state,
            aggregator=weights,
            selector=selector.observe(chosen, report),
        )
        info = Info(
            ids=ids,
            coef=coef,
            active=report.active,
            loss=jnp.where(report.active, report.loss, jnp.nan) if "loss" in read else None,
            downloads=setup.reached([jnp.where(there, ids, -1), *(who for who, _ in asked)]),
            evaluations=jnp.asarray(sum(count for _, count in asked), jnp.int32),
        )
        return after, info

    def evaluation(params: Params, data: FederatedData) -> dict[str, Evaluation]:
        return OrderedDict(  # JAX sorts the keys of a plain dict, and the history leads with the first split
            (name, Evaluation(*signals.every_client(scores, params, data, getattr(data, name), eval_batch, mesh)))
            for name in splits
        )

    step, evaluation = everywhere(step, mesh), everywhere(evaluation, mesh)
    step, evaluation = setup.computing(precision, step), setup.computing(precision, evaluation)
    return Simulation(init, step, evaluation, deploy or _last_iterate, replicate(data, mesh))


def _last_iterate(state: SimState) -> Params:
    return state.params
