"""A simulation's plan: what it was asked for, checked and completed, before anything is compiled."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import optax
from jax.sharding import Mesh

from fedjax_fair.data import FederatedData
from fedjax_fair.data.alike import SPLITS
from fedjax_fair.engine import checks
from fedjax_fair.engine.alone import check_objective
from fedjax_fair.engine.blocks import are_uneven, choose_block, choose_eval_batch, choose_interleaved
from fedjax_fair.engine.components import Components
from fedjax_fair.engine.devices import as_mesh, part
from fedjax_fair.engine.evaluation import evaluator
from fedjax_fair.engine.fit import check_fit
from fedjax_fair.engine.forward import widest
from fedjax_fair.engine.freezing import Freeze, Freezing, freezing
from fedjax_fair.engine.head import head_or, with_head
from fedjax_fair.engine.measures import Measures, as_measures, settled
from fedjax_fair.engine.memory import broadcaster, check_memory
from fedjax_fair.engine.near import check_store, largest_cohort
from fedjax_fair.engine.personal import FineTune, judged_alone, names_of, owners
from fedjax_fair.engine.precision import computing
from fedjax_fair.engine.restarts import check_descends, check_local
from fedjax_fair.engine.server import server_of, signals_read
from fedjax_fair.engine.signals import PerExample, scoring
from fedjax_fair.engine.start import first_model, shapes_of
from fedjax_fair.engine.training import cohort_training, local_work
from fedjax_fair.engine.watch import say
from fedjax_fair.local.remembering import within
from fedjax_fair.metrics.kind import Metric
from fedjax_fair.models import Model, as_model
from fedjax_fair.models.client_metrics import Whole
from fedjax_fair.models.rewriting import slow_parts
from fedjax_fair.robustness.availability import Available, PerClient
from fedjax_fair.robustness.faults import Fault, check_faults
from fedjax_fair.selectors import uniform
from fedjax_fair.types import Aggregator, Key, LossFn, Method, Params, Selector, Train, as_method


class Plan(NamedTuple):
    """What the rounds and evaluations of a simulation are made of."""

    data: FederatedData
    net: Model
    method: Method
    trainer: Train
    loss: PerExample
    measures: Measures
    metrics: list[Any]
    """The measures' functions, checked."""
    selector: Selector
    available: Available | PerClient
    faults: Sequence[Fault]
    server: optax.GradientTransformationExtraArgs
    reads: tuple[str, ...]
    """The signals that the rule, the server or the selector reads."""
    evaluate: Sequence[str | FineTune]
    names: tuple[str, ...]
    """What evaluations are called, such as "test" and "test@personal"."""
    splits: tuple[str, ...]
    """The split of each name."""
    shapes: Params
    """The model's parameters, by their shapes."""
    draw: Callable[[Key], Params]
    """The first model of a seed."""
    frozen: Freezing
    block: int | None
    """Clients that train side by side; None for all."""
    together: bool
    """Whether two train in one loop."""
    eval_batch: int
    mesh: Mesh | None

    @property
    def capacity(self) -> dict[str, int]:
        """The examples of the largest client of each split."""
        return {split: int(np.asarray(getattr(self.data, split).size).max()) for split in SPLITS}


def planned(
    model: Any,
    data: FederatedData,
    aggregator: Aggregator | Method,
    trainer: Train,
    selector: Selector | None,
    server_optimizer: optax.GradientTransformation | None,
    available: Available | PerClient,
    faults: Sequence[Fault],
    loss: PerExample,
    metric: PerExample | Metric | Mapping[str, Any] | None,
    evaluate: Sequence[str | FineTune],
    params: Params | None,
    freeze: Freeze | None,
    client_block: int | str | None,
    eval_batch: int | None,
    devices: int | Any,
) -> Plan:
    """Check what :func:`fedjax_fair.simulation` was given, the cheap things first, and choose what was left open.

    Raises:
      ValueError: an argument that does not fit.
    """
    asked = as_measures(metric, loss)
    mesh, net, method = as_mesh(devices), as_model(model), as_method(aggregator)
    selector = uniform(data.n_clients) if selector is None else selector
    checks.check_cohort(selector, data.n_clients)
    check_store(data, mesh, selector.cohort)
    selector = selector if method.selector is None else method.selector(selector)
    checks.check_federation(selector, available, data.n_clients, method.aggregator)
    faults = check_faults(faults, data.n_clients)
    names = names_of(evaluate, method.memory)
    splits = checks.check_splits(names, data)
    example, shapes = shapes_of(net, data)
    frozen = freezing(head_or(freeze, net, shapes, example), shapes)
    method = with_head(method, frozen.holding(net), frozen.trained(shapes), example)
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
    for entry in evaluate:
        if isinstance(entry, FineTune):
            check_tuning(
                *local_work(frozen.holding(net), Method(method.aggregator), entry.trainer, loss), trained, data
            )
    check_memory(method, trained, data.n_clients, mesh)
    say([remark] if (remark := getattr(method.aggregator.weigh, "remark", "")) else [])
    server = server_of(method, server_optimizer, data, selector, trained)
    count = part(selector.cohort, mesh)
    alone = mesh is not None or count == 1  # a device per core has no other to share
    return Plan(
        data=data,
        net=net,
        method=method,
        trainer=trainer,
        loss=loss,
        measures=measures,
        metrics=metrics,
        selector=selector,
        available=available,
        faults=faults,
        server=server,
        reads=signals_read(method, server, selector, data, trained, measures.first),
        evaluate=evaluate,
        names=names,
        splits=splits,
        shapes=shapes,
        draw=draw,
        frozen=frozen,
        block=choose_block(client_block, count, shapes, data.sizes),
        together=not alone and choose_interleaved(client_block, train, net, shapes, example) is not None,
        eval_batch=eval_batch,
        mesh=mesh,
    )


def check_tuning(train: Train, loss: LossFn, shapes: Params, data: FederatedData) -> None:
    """What clients tune by is held to what they train by is; but its schedule may well begin anew every time.

    Raises:
      ValueError: it is not.
    """
    try:
        check_objective(loss, within(train), shapes, data.sizes)
        check_descends(within(train), shapes)
        checks.check_trainer(train, loss, shapes, data)
    except ValueError as error:
        raise ValueError(f"fine_tune's {error}") from error


def components(plan: Plan, net: Model) -> Components:
    """What every round is made of, with this model: the plan's own, or it with its frozen parameters in place."""
    train, local_loss = local_work(net, plan.method, plan.trainer, plan.loss)
    sizes, capacity, memory, revise = plan.data.sizes, plan.capacity, plan.method.memory, plan.method.revise
    interleaved = train if plan.together else None
    metric = plan.loss if isinstance(plan.metrics[0], Whole) else plan.metrics[0]  # no rule reads a Whole
    return Components(
        n_clients=plan.data.n_clients,
        selector=plan.selector,
        available=plan.available,
        faults=plan.faults,
        training=cohort_training(train, local_loss, sizes, plan.block, interleaved, bool(plan.faults), memory),
        loss=scoring(net, plan.loss),
        metric=scoring(net, metric),
        largest_train=capacity["train"],
        largest_cohort=largest_cohort(sizes, plan.selector.cohort),
        largest_validation=capacity["validation"],
        uneven=are_uneven(sizes),
        eval_batch=plan.eval_batch,
        weigh=computing("highest", plan.method.aggregator.weigh),
        update=computing("highest", plan.server.update),
        reads=plan.reads,
        watches=getattr(plan.method.aggregator.weigh, "watches", plan.reads),
        memory=memory,
        broadcast=broadcaster(plan.method),
        revise=None if revise is None else computing("highest", revise),
        mesh=plan.mesh,
    )


def evaluation(plan: Plan, net: Model) -> Callable[..., Any]:
    """``(params, data, memory, who) -> every client's result`` by each of the plan's names, with this model."""

    def work(tune: Train) -> tuple[Train, Any]:
        return local_work(net, Method(plan.method.aggregator), tune, plan.loss)

    scores = plan.measures.score(net, plan.loss)
    results = (plan.measures.wholes, plan.measures.evaluation, plan.capacity)
    own = owners(plan.evaluate, plan.method.memory, work, plan.data.sizes)
    alone = judged_alone(scores, own, plan.eval_batch, plan.mesh, *results, are_uneven(plan.data.sizes))
    return evaluator(scores, plan.names, plan.eval_batch, plan.mesh, alone, *results)
