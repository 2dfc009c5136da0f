"""A federation put together: everything checked, then rounds and evaluations as pure functions."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args

import jax
import numpy as np
import optax
from jax.sharding import Mesh

from fedjax_fair.checks import check_choice
from fedjax_fair.data import FederatedData
from fedjax_fair.engine import checks
from fedjax_fair.engine.ahead import coming
from fedjax_fair.engine.alone import check_objective
from fedjax_fair.engine.blocks import are_uneven, choose_block, choose_eval_batch, choose_interleaved
from fedjax_fair.engine.components import Components
from fedjax_fair.engine.devices import as_mesh, everywhere, part, replicate
from fedjax_fair.engine.fit import check_fit, check_other, of_this_form
from fedjax_fair.engine.forward import widest
from fedjax_fair.engine.freezing import Freeze, deploying, freezing, of_whole, step_of
from fedjax_fair.engine.measures import as_measures, settled
from fedjax_fair.engine.memory import broadcaster, check_memory
from fedjax_fair.engine.near import largest_cohort
from fedjax_fair.engine.outputs import outputs_of
from fedjax_fair.engine.personal import FineTune, judged_alone, names_of, owners
from fedjax_fair.engine.restarts import check_local
from fedjax_fair.engine.server import server_of, signals_read
from fedjax_fair.engine.signals import PerExample, evaluator, scoring
from fedjax_fair.engine.start import first_model, initializer, shapes_of
from fedjax_fair.engine.training import cohort_training, local_work
from fedjax_fair.engine.watch import say
from fedjax_fair.local.remembering import within
from fedjax_fair.metrics.kind import Metric
from fedjax_fair.models import Model, as_model, losses
from fedjax_fair.models.client_metrics import Whole
from fedjax_fair.models.rewriting import slow_parts
from fedjax_fair.robustness.availability import Available, PerClient, always
from fedjax_fair.robustness.faults import Fault, check_faults
from fedjax_fair.selectors import uniform
from fedjax_fair.types import (
    Aggregator,
    Method,
    Params,
    Selector,
    SimState,
    Simulation,
    Train,
    as_method,
)

Precision = Literal["highest", "high", "default"]

SPLITS = ("train", "validation", "test")
F = TypeVar("F", bound=Callable[..., Any])


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
    loss: PerExample = losses.softmax_cross_entropy,
    metric: PerExample | Metric | Mapping[str, Any] | None = None,
    evaluate: Sequence[str | FineTune] = ("test",),
    deploy: Callable[[SimState], Params] | None = None,
    params: Params | None = None,
    freeze: Freeze | None = None,
    client_block: int | str | None = "auto",
    eval_batch: int | None = None,
    precision: Precision = "highest",
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
      loss: per-example loss ``(outputs, y) -> f[B]``: an example's own, whatever is beside it in a batch.
      metric: per-example metric, likewise, reported as accuracy: from 0 to 1, higher is better.
        An ``ff.Metric`` of one says what else it is; of a loss, ``ff.losses.squared_error``, lower is better.
        Metrics of whole clients, such as ``ff.losses.auroc`` and ``ff.losses.whole(fn)``, are no means. Several
        by name, ``{"accuracy": ..., "auroc": ...}``, take one forward pass; the first is reported as accuracy. By
        default what the loss asks for: ``ff.losses.accuracy``; ``binary_accuracy`` where a model has one output
        and the loss goes by its sign, and of ``sigmoid_cross_entropy``; ``rmse`` of ``squared_error``.
      evaluate: the splits that ``sim.evaluate`` scores, the first being the one that the history leads with.
        ``"test@personal"`` scores every client's own model, of methods such as ``ff.ditto()``;
        ``ff.fine_tune(trainer)`` the global one after every client has tuned it, as ``"test@tuned"``.
      deploy: the model to evaluate, of a state; the last iterate by default, ``ff.averaged`` for the mean of all.
      params: the model to start from, whatever the seed, such as a pretrained one: parameters in the form of
        ``sim.init(key).params`` (of a linen module ``variables["params"]``), known by their paths. Everything
        else that a seed decides stays as it is. By default every seed draws its own.
      freeze: the parameters that stay as they began: a regular expression that is looked for in a parameter's path
        such as "body/kernel", a list of them, "last" as in ``ff.fedper``, or ``path -> bool``. Frozen ones are no
        part of what is trained: clients, rules, defences and ``deploy`` find None in their place.
      client_block: how many clients train side by side, vmapped: None for all, 1 for one after another, or a number
        in between. "auto": on an accelerator all. On one CPU device two at a time in one loop, not
        vmapped: of models of dense layers only, of more than 2^15 entries and at most 1 MB. Otherwise on a CPU one
        after another where it has convolutions or attention, or sizes differ much (vmapped clients all wait for the
        largest); else as many as have models of 256 kB together.
      eval_batch: examples per forward pass wherever all clients share a model; by default 4,096 for a model of
        vectors and matrices below 2^15 entries, whose products are shorter than the loop around them, else 512 at
        most: on a CPU as many as keep the largest array of a pass below 4 MB, but at least 16.
      precision: of the models' matrix products where the hardware has a choice: "highest" is float32, "high"
        and "default" are faster and coarser (TF32 or bfloat16 on a GPU or TPU; a CPU knows only float32). The
        rule and the server always compute in the highest.
      devices: how many of JAX's devices share the cohort, or a mesh of one axis.

    Raises:
      ValueError: an argument that does not fit, before anything expensive starts.
    """
    arguments = dict(locals())
    checks.check_types(data, server_optimizer, loss, deploy)
    asked = as_measures(metric, loss)
    mesh, net, method = as_mesh(devices), as_model(model), as_method(aggregator)
    selector = uniform(data.n_clients) if selector is None else selector
    checks.check_cohort(selector, data.n_clients)
    checks.check_store(data, mesh, selector.cohort)
    selector = selector if method.selector is None else method.selector(selector)
    checks.check_federation(selector, available, data.n_clients, method.aggregator)
    faults = check_faults(faults, data.n_clients)
    names = names_of(evaluate, method.memory)
    splits = checks.check_splits(names, data)
    check_choice("precision", precision, get_args(Precision))
    example, shapes = shapes_of(net, data)
    frozen = freezing(freeze, shapes)
    draw = first_model(params, shapes, net, example)
    train, local_loss = local_work(frozen.holding(net), method, trainer, loss)
    trained = frozen.trained(shapes)
    measures, metrics = settled(asked, loss, functools.partial(check_fit, net, shapes, data, loss))
    say(slow_parts(net, shapes, example))
    eval_batch = choose_eval_batch(eval_batch, shapes, lambda: widest(net, shapes, example))
    check_objective(local_loss, within(train), trained, data.sizes)
    check_local(within(train), trained, data.sizes)
    if method.memory is None:
        checks.check_trainer(train, local_loss, trained, data)
    check_memory(method, trained, data.n_clients, mesh)
    say([remark] if (remark := getattr(method.aggregator.weigh, "remark", "")) else [])
    server = server_of(method, server_optimizer, data, selector, trained)
    count = part(selector.cohort, mesh)
    block = choose_block(client_block, count, shapes, data.sizes)
    alone = mesh is not None or count == 1  # a device per core has no other to share
    together = not alone and choose_interleaved(client_block, train, net, shapes, example) is not None
    uneven, reads = are_uneven(data.sizes), signals_read(method, server, selector, data, trained, measures.first)
    capacity = {split: int(np.asarray(getattr(data, split).size).max()) for split in SPLITS}

    def parts_of(net: Model) -> Components:
        train, local_loss = local_work(net, method, trainer, loss)
        return Components(
            n_clients=data.n_clients,
            selector=selector,
            available=available,
            faults=faults,
            training=cohort_training(
                train, local_loss, data.sizes, block, train if together else None, bool(faults), method.memory
            ),
            loss=scoring(net, loss),
            metric=scoring(net, loss if isinstance(metrics[0], Whole) else metrics[0]),  # no rule reads it then
            largest_train=capacity["train"],
            largest_cohort=largest_cohort(data.sizes, selector.cohort),
            largest_validation=capacity["validation"],
            uneven=uneven,
            eval_batch=eval_batch,
            weigh=computing("highest", method.aggregator.weigh),
            update=computing("highest", server.update),
            reads=reads,
            memory=method.memory,
            broadcast=broadcaster(method),
            revise=None if method.revise is None else computing("highest", method.revise),
            mesh=mesh,
        )

    def evaluation_of(net: Model) -> Callable[..., Any]:
        scores, naming = measures.score(net, loss), (measures.wholes, measures.evaluation, capacity)
        work = lambda tune: local_work(net, Method(method.aggregator), tune, loss)  # noqa: E731
        own = owners(evaluate, method.memory, work, data.sizes)
        judge = judged_alone(scores, own, eval_batch, mesh, *naming, uneven)
        return evaluator(scores, names, eval_batch, mesh, judge, *naming)

    placed = replicate(data, mesh)
    init = initializer(draw, frozen, method, server, selector, data, mesh)
    deploy = None if deploy is None else deploying(frozen, deploy)
    checks.check_deploy(deploy, init, shapes)
    outputs = outputs_of(frozen, net, data, method.memory, eval_batch, mesh)
    return Simulation(
        init,
        computing(precision, of_this_form(placed, everywhere(step_of(frozen, net, parts_of), mesh))),
        computing(precision, everywhere(of_whole(frozen, net, evaluation_of), mesh)),
        deploy or _last_iterate,
        placed,
        getattr(method.aggregator.weigh, "positive_losses", False) and not {"loss", "train_loss"}.isdisjoint(reads),
        np.any([fault.who for fault in faults], axis=0) if faults else None,
        measures.first,
        functools.partial(check_other, (data, placed), net, shapes, loss, metrics, splits),
        reads,
        measures.further,
        arguments,
        {name: computing(precision, everywhere(of, mesh)) for name, of in outputs.items()},
        coming(parts_of(frozen.holding(net)), init, frozen.trained, placed),
    )


def computing(precision: str, function: F) -> F:
    """``function`` with this precision in its matrix products, unless a product names its own."""

    @functools.wraps(function)
    def precise(*args: Any, **kwargs: Any) -> Any:
        with jax.default_matmul_precision(precision):
            return function(*args, **kwargs)

    return precise  # type: ignore[return-value]


def _last_iterate(state: SimState) -> Params:
    return state.params
