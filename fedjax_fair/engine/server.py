"""The server of a simulation: what moves the model, and what it and the rule need to know of the clients."""

from typing import Any

import optax

from fedjax_fair.data import FederatedData
from fedjax_fair.engine.checks import checking, observing
from fedjax_fair.engine.descent import check_server
from fedjax_fair.metrics.kind import Metric
from fedjax_fair.models.metric import check_accuracy
from fedjax_fair.reads import reads
from fedjax_fair.robustness.defences import check_descends
from fedjax_fair.types import Method, Params, Selector, server_transform


def server_of(
    method: Method,
    optimizer: optax.GradientTransformation | None,
    data: FederatedData,
    selector: Selector,
    shapes: Params,
) -> optax.GradientTransformationExtraArgs:
    """The method's own transform, then the optimiser; ValueError where they do not descend."""
    server = optax.chain(
        server_transform(method, data.n_clients, selector.cohort),
        optax.sgd(1.0) if optimizer is None else optimizer,
    )
    cancels = getattr(method.aggregator.weigh, "cancels", False)
    check_descends(server, shapes, selector.cohort, method.memory, cancels)
    check_server(method, optimizer, shapes, selector.cohort)
    return server


def signals_read(
    method: Method, server: Any, selector: Selector, data: FederatedData, shapes: Params, metric: Metric
) -> tuple[str, ...]:
    """What the rule, the server's optimiser and the selector read of the report; ValueError where data lack it, or
    the rule does not answer as it should. Rules that are joined have been asked, each in its own simulation."""
    read = getattr(method.aggregator.weigh, "known_reads", None)
    if read is None:
        asked = checking(method.aggregator, selector.cohort, data.n_clients)
        listening = method._replace(transform=server, aggregator=asked)
        sizes = {"n_clients": data.n_clients, "cohort": selector.cohort, "params": shapes}
        read = reads(listening, observing(selector), **sizes)
    if "accuracy" in read and not data.validation.rows.shape[0]:
        raise ValueError("accuracy is read, but the data has no validation split: give split a second share")
    if "accuracy" in read:
        check_accuracy(metric)
    return read
