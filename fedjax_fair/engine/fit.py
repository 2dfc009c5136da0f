"""The model, the loss and the metric fit the data: by shapes, by the labels, and tried out on three examples."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_fair.checks import said
from fedjax_fair.data import FederatedData
from fedjax_fair.engine.alone import outputs_alone, scores_alone, some_examples, trained_alone, two_and_three
from fedjax_fair.engine.behaviour import (
    Tried,
    judges_by_sign,
    knows_label,
    says_one_class_only,
    tells_classes,
    tells_two,
)
from fedjax_fair.engine.checks import check_splits
from fedjax_fair.engine.default_metric import default_metric
from fedjax_fair.engine.forward import forward
from fedjax_fair.engine.scaled import told_apart
from fedjax_fair.engine.signals import PerExample
from fedjax_fair.engine.whole import check_whole, whole_alone
from fedjax_fair.models import Model, losses
from fedjax_fair.models.client_metrics import Whole
from fedjax_fair.models.stock import is_stock
from fedjax_fair.types import Params

STOCK = (
    *("softmax_cross_entropy", "sigmoid_cross_entropy", "squared_error", "absolute_error"),
    *("accuracy", "binary_accuracy"),
)


def check_fit(
    net: Model, params: Params, data: FederatedData, loss: PerExample, given: Sequence[PerExample | Whole] | None
) -> list[PerExample | Whole]:
    """The metrics, as given or as fits the loss; everything else is traced, or tried on three examples.

    Raises:
      ValueError: the model, the loss, the metric and the labels do not go together.
    """
    x, y = data.form(2)
    examples = some_examples(data)
    programs = None if examples is None or is_stock(net) else two_and_three(net, params, data, examples[0])
    outputs = _one_array(forward(net, params, x).outputs if programs is None else programs[0])
    _check_scores("loss", loss, outputs, y)
    one = y.ndim == 1 and outputs.shape in ((2,), (2, 1))
    tried, drawn, labels = None, None, np.asarray(0)
    if examples is not None:
        if programs is not None:
            drawn = outputs_alone(*programs[1:], params, examples[0])
            told_apart(net, params, data, examples[0], drawn)
            trained_alone(net, params, data, examples[0])
        labels = np.asarray(data.y)
        tried = Tried(loss, outputs, y, drawn, labels.min(), labels.max())
    metrics = [default_metric(loss, one, tried)] if given is None else [*given]
    means = [metric for metric in metrics if not isinstance(metric, Whole)]
    for metric in metrics:
        if isinstance(metric, Whole):
            check_whole(metric, outputs, y)
        else:
            _check_scores("metric", metric, outputs, y)
    if examples is not None and tried is not None:
        for name, function in (("loss", loss), *(("metric", metric) for metric in means)):
            if not is_named(function, *STOCK):
                scores_alone(name, function, tried.three(), examples[1], outputs.dtype)
        check_labels(loss, tried, labels)
        for metric in metrics:
            if isinstance(metric, Whole):
                whole_alone(metric, tried.three(), examples[1], outputs.dtype)
            else:
                check_metric(metric, given is None, one, tried, labels)
    return metrics


def _one_array(outputs: Any) -> jax.ShapeDtypeStruct:
    if not hasattr(outputs, "shape") or outputs.shape[:1] != (2,):
        got = getattr(outputs, "shape", type(outputs).__name__)
        raise ValueError(f"model must return one array of outputs [B, ...], [2, ...] for two examples, got {got}")
    return outputs


def is_named(function: PerExample, *names: str) -> bool:
    """Whether it is one of the package's own losses and metrics."""
    return any(function is getattr(losses, name) for name in names)


def _check_scores(argument: str, given: PerExample, outputs: jax.ShapeDtypeStruct, y: jax.ShapeDtypeStruct) -> None:
    """One value for each of two examples."""
    per_label = outputs.shape[:-1] == y.shape or (outputs.ndim, y.ndim) == (2, 1)
    classifies = per_label and jnp.issubdtype(y.dtype, jnp.integer)
    for name in ("softmax_cross_entropy", "accuracy"):
        if is_named(given, name) and not classifies:
            raise ValueError(
                f"{name} needs logits [B, C] and integer labels [B], or [B, T, C] and [B, T], got outputs "
                f"{outputs.shape} and labels {y.shape} of type {y.dtype}; pass another {argument}="
            )
    whole = "; a measure of all of a client's examples is ff.losses.whole(function)" * (argument == "metric")
    try:
        values = jax.eval_shape(given, outputs, y)
    except Exception as error:  # whatever a user's function raises
        raise ValueError(
            f"{argument} must take two examples' outputs {outputs.dtype}{list(outputs.shape)} and labels "
            f"{y.dtype}{list(y.shape)}, got {said(error)}{whole}"
        ) from error
    if getattr(values, "shape", None) != (2,):
        got = f"shape {values.shape}" if hasattr(values, "shape") else type(values).__name__
        raise ValueError(f"{argument} must return one value per example, [2] for two, got {got}{whole}")


def check_labels(loss: PerExample, tried: Tried, y: np.ndarray) -> None:
    """Labels that the loss has no output for, or that lie outside what it is made for."""
    lowest, highest, weights = tried.lowest, tried.highest, getattr(loss, "weights", None)
    if weights is not None and highest >= len(weights):
        raise ValueError(
            f"labels must be below the {len(weights)} weights of ff.losses.weighted, got label {highest}"
        )
    if tells_two(loss, tried) and not (lowest >= 0 and highest <= 1):
        raise ValueError(
            f"labels must be 0 or 1 for a binary cross-entropy of one logit each, got {lowest:g} to {highest:g}: "
            "pass another loss=, such as softmax_cross_entropy with an output per class"
        )
    classes = tried.outputs.shape[-1] if tried.outputs.ndim > 1 else 1
    if not jnp.issubdtype(y.dtype, jnp.integer):
        return
    if lowest < 0 and y.ndim == 1 and is_named(loss, "softmax_cross_entropy"):
        raise ValueError(f"labels must be from 0 to the model's {classes} outputs - 1, got label {lowest}")
    if highest < classes or not tells_classes(loss, tried):
        return
    if not knows_label(loss, tried):
        count = len(np.unique(y))
        advice = "give the model more classes"
        if (classes, highest) == (1, 1):
            advice += ", or, for one logit, loss=ff.losses.sigmoid_cross_entropy"
        if count <= highest:  # some number below the highest is nobody's label
            advice = f"renumber the {count} labels, np.unique(y, return_inverse=True)[1]"
            advice += (
                f", or give the model {highest + 1} classes" if count <= classes else f"; it needs {count} outputs"
            )
        raise ValueError(f"labels must be below the model's {classes} outputs, got label {highest}: {advice}")


def check_metric(metric: PerExample, by_default: bool, one: bool, tried: Tried, y: np.ndarray) -> None:
    """A metric that cannot tell right from wrong under this loss."""
    two = "for one logit ff.losses.binary_accuracy, --metric binary_accuracy"
    hint = f"pass a metric of outputs and labels, {'such as ff.losses.rmse' if one and tried.highest > 1 else two}"
    if one and tried.highest > 0 and says_one_class_only(metric, tried):
        raise ValueError(
            f"metric must depend on the outputs, but accuracy of one output, {list(tried.outputs.shape[1:])} an "
            f"example, is the share of labels 0: {hint}"
        )
    if by_default and is_named(metric, "accuracy") and not one and not tells_classes(tried.loss, tried):
        raise ValueError(f"metric must be given where the loss does not take the outputs for classes: {hint}")
    if judges_by_sign(metric, tried) and not np.isin(y, (-1, 0, 1)).all():
        raise ValueError(
            f"labels must be 0 or 1 for a metric that goes by the sign of one output, got {tried.lowest:g} to "
            f"{tried.highest:g}: pass another metric="
        )


def check_parameters(params: Params) -> Params:
    """The parameters, by their shapes; ValueError unless they are floats, of which there is at least one."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            kind = "keys of random numbers" if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf.dtype
            raise ValueError(
                f"model's parameters must be floats, which can be averaged, got {kind} in params"
                f"{jax.tree_util.keystr(path)}: keep what is not trained outside of them"
            )
    if not sum(leaf.size for leaf in jax.tree.leaves(params)):
        raise ValueError("model must have parameters to train, got none")
    return params


def check_other(
    made_for: tuple[FederatedData, FederatedData],
    net: Model,
    params: Params,
    loss: PerExample,
    metrics: Sequence[PerExample | Whole],
    splits: Sequence[str],
    data: FederatedData,
) -> None:
    """Data that take the place of those that a simulation is ``made_for`` (as given, and as laid on its devices).

    Raises:
      ValueError: other clients, other sizes, other forms of example, or labels that do not fit.
    """
    if any(data is known for known in made_for):
        return
    check_form(made_for[1], data)
    first = made_for[1]
    whole = any(isinstance(metric, Whole) for metric in metrics)
    for split in {"validation", *(splits if whole else ())}:
        largest, before = (int(np.asarray(getattr(d, split).size).max()) for d in (data, first))
        if largest > before:
            raise ValueError(
                f"data must have at most {before} {split} examples a client, as at first, got {largest}"
            )
    check_splits(splits, data)
    check_fit(net, params, data, loss, metrics)


def check_form(first: FederatedData, data: FederatedData) -> None:
    """As far as it is known of data that may be traced: the clients, their sizes, and the form of an example.

    Raises:
      ValueError: they are not those of ``first``.
    """
    if not isinstance(data, FederatedData):
        raise ValueError(f"data must be a FederatedData, such as ff.data.synthetic(), got {type(data).__name__}")
    known = not any(isinstance(d.train.size, jax.core.Tracer) for d in (data, first))
    shapes = [(d.train.size.shape, d.train.rows.shape) for d in (data, first)]
    if shapes[0] != shapes[1] or (known and not np.array_equal(data.sizes, first.sizes)):
        raise ValueError("data must have the clients and the sizes that the simulation is made for, got others")
    mine, wanted = (
        str(
            jax.tree.map(
                lambda v: f"{v.dtype}{list(v.shape)}", jax.eval_shape(lambda d=d: d.take(jnp.zeros(1, int)))
            )
        )
        for d in (data, first)
    )
    if mine != wanted:
        raise ValueError(
            f"data must have examples of the form that the simulation is made for, {wanted}, got {mine}"
        )


def of_this_form(first: FederatedData, step: Callable[..., Any]) -> Callable[..., Any]:
    """A round that refuses, when it is traced, data of another form: gathers beyond an array's end are silent."""

    def checked(state: Any, data: FederatedData) -> Any:
        check_form(first, data)
        return step(state, data)

    return checked
