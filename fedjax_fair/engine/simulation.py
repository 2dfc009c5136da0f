"""A federation put together: everything checked, then rounds and evaluations as pure functions."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import numpy as np
import optax
from jax.sharding import Mesh

from fedjax_fair.checks import check_choice
from fedjax_fair.data import FederatedData
from fedjax_fair.engine import checks
from fedjax_fair.engine.ahead import coming
from fedjax_fair.engine.devices import everywhere, replicate
from fedjax_fair.engine.fit import check_other, of_this_form
from fedjax_fair.engine.freezing import Freeze, deploying, of_whole, step_of
from fedjax_fair.engine.outputs import outputs_of
from fedjax_fair.engine.personal import FineTune
from fedjax_fair.engine.plan import components, evaluation, planned
from fedjax_fair.engine.precision import Precision, computing
from fedjax_fair.engine.signals import PerExample
from fedjax_fair.engine.start import initializer
from fedjax_fair.metrics.kind import Metric
from fedjax_fair.models import losses
from fedjax_fair.robustness.availability import Available, PerClient, always
from fedjax_fair.robustness.faults import Fault
from fedjax_fair.types import Aggregator, Method, Params, Selector, SimState, Simulation, Train


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
        vmapped: of models of at most 1 MB with attention (kernels of three axes), or of dense layers only and more
        than 2^15 entries. Otherwise on a CPU one after another where it has convolutions or attention, or sizes
        differ much (vmapped clients all wait for the largest); else as many as have models of 256 kB together.
      eval_batch: examples per forward pass wherever all clients share a model; by default 4,096 for a model of
        vectors and matrices below 2^15 entries, whose products are shorter than the loop around them, else 512 at
        most: on a CPU as many as keep the largest array of a pass below 4 MB, but at least 16. The losses that
        rules read take 384 at most, but everybody's only on a CPU where sizes differ much.
      precision: of the models' matrix products where the hardware has a choice: "highest" is float32, "high"
        and "default" are faster and coarser (TF32 or bfloat16 on a GPU or TPU; a CPU knows only float32). The
        rule and the server always compute in the highest.
      devices: how many of JAX's devices share the cohort, or a mesh of one axis.

    Raises:
      ValueError: an argument that does not fit, before anything expensive starts.
    """
    arguments = dict(locals())
    checks.check_types(data, server_optimizer, loss, deploy)
    check_choice("precision", precision, get_args(Precision))
    plan = planned(**{name: given for name, given in arguments.items() if name not in ("deploy", "precision")})
    net, mesh, frozen, reads = plan.net, plan.mesh, plan.frozen, plan.reads
    parts_of, evaluation_of = functools.partial(components, plan), functools.partial(evaluation, plan)
    placed = replicate(data, mesh)
    init = initializer(plan.draw, frozen, plan.method, plan.server, plan.selector, data, mesh)
    deploy = None if deploy is None else deploying(frozen, deploy)
    checks.check_deploy(deploy, init, plan.shapes)
    outputs = outputs_of(frozen, net, data, plan.method.memory, plan.eval_batch, mesh)
    positive = getattr(plan.method.aggregator.weigh, "positive_losses", False)
    return Simulation(
        init=init,
        step=computing(precision, of_this_form(placed, everywhere(step_of(frozen, net, parts_of), mesh))),
        evaluate=computing(precision, everywhere(of_whole(frozen, net, evaluation_of), mesh)),
        deploy=deploy or _last_iterate,
        data=placed,
        positive_losses=positive and not {"loss", "train_loss"}.isdisjoint(reads),
        faulty=np.any([fault.who for fault in plan.faults], axis=0) if plan.faults else None,
        metric=plan.measures.first,
        check=functools.partial(check_other, (data, placed), net, plan.shapes, loss, plan.metrics, plan.splits),
        reads=reads,
        further=plan.measures.further,
        arguments=arguments,
        outputs={name: computing(precision, everywhere(of, mesh)) for name, of in outputs.items()},
        coming=coming(parts_of(frozen.holding(net)), init, frozen.trained, placed),
    )


def _last_iterate(state: SimState) -> Params:
    return state.params
