"""Every example counts for itself: what a model, a loss, a metric and an objective make of some does not depend on
others beside them. Tried out on two and on three examples, before anything is compiled.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from fedjax_fair.data import FederatedData
from fedjax_fair.data.host_store import HostStore
from fedjax_fair.data.normalize import normalize
from fedjax_fair.engine.signals import PerExample
from fedjax_fair.local.objectives import LocalLoss, erm
from fedjax_fair.local.sgd import LocalSGD
from fedjax_fair.models import Model
from fedjax_fair.numerics.by_numpy import by_jax, evaluate, is_concrete
from fedjax_fair.types import LossFn, Params

LARGEST = 2**26
"""Parameters above which a model is not tried out: 256 MB of them."""
PERIOD = 65521  # a prime: no axis repeats with it


def some_examples(data: FederatedData) -> tuple[Any, np.ndarray] | None:
    """Three examples of the store, raw, as NumPy arrays: with the largest label, the smallest, and one more.

    None under a trace, where there is nothing to look at.
    """
    if any(isinstance(leaf, jax.core.Tracer) for leaf in (*jax.tree.leaves(data), jnp.zeros(()))):
        return None
    y = np.asarray(data.y)
    of_example = y.reshape(len(y), -1)
    rows = [int(of_example.max(1).argmax()), int(of_example.min(1).argmin())]
    others = (of_example != of_example[rows[0]]).any(1) & (of_example != of_example[rows[1]]).any(1)
    spare = [row for row in (*np.flatnonzero(others)[:1], 0, len(y) // 2, len(y) - 1) if row not in rows]
    rows.append(int(spare[0]) if spare else rows[0])
    if rows[0] == rows[1]:  # all alike
        rows[1] = (rows[0] + 1) % len(y)
    x = data.x.read(rows) if isinstance(data.x, HostStore) else jax.tree.map(lambda leaf: _rows(leaf, rows), data.x)
    return x, y[rows]


def _rows(leaf: Any, rows: list[int]) -> np.ndarray:
    return np.asarray(leaf)[rows] if jax.default_backend() == "cpu" else np.asarray(leaf[np.array(rows)])


def two_and_three(
    net: Model, shapes: Params, data: FederatedData, x: Any
) -> tuple[Any, ClosedJaxpr, ClosedJaxpr] | None:
    """The outputs' form for two raw examples, and the model's programs for two and for all three of ``x``.

    None for a model that is too large to be tried.
    """
    leaves = jax.tree.leaves(shapes)
    if sum(leaf.size for leaf in leaves) > LARGEST:
        return None
    forward = _forward(net, shapes, data, None)
    two, form = jax.make_jaxpr(forward, return_shape=True)(leaves, jax.tree.map(lambda v: v[:2], x))
    return form, two, jax.make_jaxpr(forward)(leaves, x)


def _forward(net: Model, shapes: Params, data: FederatedData, key: Any) -> Callable[[list[Any], Any], Any]:
    """``(the parameters' leaves, raw examples) -> outputs``; a key means training."""

    def forward(params: list[Any], x: Any) -> Any:
        inputs = x if data.normalizer is None else normalize(x, data.normalizer)
        return net.apply(jax.tree.unflatten(jax.tree.structure(shapes), params), inputs, key)

    return forward


def outputs_alone(two: ClosedJaxpr, three: ClosedJaxpr, shapes: Params, x: Any) -> np.ndarray | None:
    """The outputs for three examples under random parameters; None where they close over something traced.

    Raises:
      ValueError: an example's outputs depend on the batch that it is in.
    """
    if not (is_concrete(three) and is_concrete(two)):
        return None
    params = _random_like(jax.tree.leaves(shapes))
    outputs, found = _together(three, two, params, jax.tree.leaves(x))
    if found is not None:
        raise ValueError(
            "model must treat every example by itself, but its outputs for an example change with the others of "
            "the batch: look for sums over the first axis, or inputs without a channel axis"
        )
    return outputs


def trained_alone(net: Model, shapes: Params, data: FederatedData, x: Any) -> None:
    """ValueError where an example's outputs in training depend on what the others of its batch are.

    The noise of a dropout is the same in both passes.
    """
    leaves = jax.tree.leaves(shapes)
    program = jax.make_jaxpr(_forward(net, shapes, data, jax.random.key(0)))(leaves, x)
    if not is_concrete(program):
        return
    params, first = _random_like(leaves), jax.tree.leaves(x)
    swapped = [v[[0, 1, 0 if (v[2] != v[0]).any() else 1]] for v in first]
    for by, close in ((evaluate, 1e-3), (by_jax, 0.1 if _is_half(program) else 1e-3)):  # JAX has the last word
        one, other = (by(program, *params, *given)[0][:2] for given in (first, swapped))
        if np.allclose(one, other, rtol=0, atol=close * _largest(one), equal_nan=True):
            return
    raise ValueError(
        "model must treat every example by itself in training, too, but there its outputs for an example change "
        "with the others of the batch, as with a batch's statistics: use nn.GroupNorm or nn.LayerNorm"
    )


def scores_alone(name: str, measure: PerExample, outputs: np.ndarray, y: np.ndarray, dtype: Any) -> None:
    """ValueError where an example's loss or metric depends on the others of its batch.

    Args:
      name: "loss" or "metric".
      measure: the loss or the metric.
      outputs: of three examples.
      y: their labels.
      dtype: the outputs' type.
    """
    first = jax.ShapeDtypeStruct(outputs.shape, dtype)

    def of(n: int) -> ClosedJaxpr:
        some = (jax.ShapeDtypeStruct((n, *value.shape[1:]), value.dtype) for value in (first, y))
        program = jax.make_jaxpr(measure)(*some)
        if (got := program.out_avals[0].shape) != (n,):
            raise ValueError(f"{name} must return one value per example, [{n}] for {n}, got shape {got}")
        return program

    three, two = of(3), of(2)
    if not (is_concrete(three) and is_concrete(two)):
        return
    for sign in (
        1,
        -1,
    ):  # of a second example that decides otherwise, for what counts classes sees no more than that
        signs = np.array([1, sign, 1], outputs.dtype).reshape(-1, *[1] * (outputs.ndim - 1))
        _, found = _together(three, two, [], [signs * outputs, y])
        if found is None:
            continue
        hint = (
            "look for sums or means over the batch"
            if outputs.ndim == y.ndim or outputs.shape[-1] > 1
            else f"outputs {list(outputs.shape)} and labels {list(y.shape)} may be broadcast against each other"
        )
        raise ValueError(
            f"{name} must judge every example by its own outputs and label, but gives {found[0]:.4g} in a batch of "
            f"3 and {found[1]:.4g} in one of 2: {hint}"
        )


def _together(
    three: ClosedJaxpr, two: ClosedJaxpr, shared: list[Any], given: list[Any]
) -> tuple[np.ndarray, tuple[float, float] | None]:
    """What three examples make together, and where a batch of two makes other numbers of one, both of them.

    Args:
      three: a program ``(*shared, *given) -> [3, ...]``.
      two: the same for two examples.
      shared: inputs that are not examples.
      given: [3, ...] arrays.
    """

    def compared(by: Callable[..., list[Any]], tolerance: float) -> tuple[np.ndarray, tuple[float, float] | None]:
        together = by(three, *shared, *given)[0]
        first, again = (by(two, *shared, *(v[rows] for v in given))[0] for rows in ([0, 1], [2, 0]))
        close = tolerance * _largest(together)
        for one, other in ((together[:2], first), (together[[2, 0]], again)):
            wrong = ~np.isclose(one, other, rtol=0, atol=close, equal_nan=True)
            if wrong.any():
                return together, (float(one[wrong][0]), float(other[wrong][0]))
        return together, None

    outputs, found = compared(evaluate, 1e-3)
    if found is None:
        return outputs, None
    return compared(by_jax, 0.1 if _is_half(three) else 1e-3)  # JAX has the last word


def _largest(values: np.ndarray) -> float:
    return float(np.abs(np.where(np.isfinite(values), values, 0)).max(initial=0))


def _is_half(program: ClosedJaxpr) -> bool:
    """Whether it takes or makes floats of less than 32 bits."""
    types = [var.aval.dtype for var in (*program.jaxpr.outvars, *program.jaxpr.invars)]
    return any(jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32 for dtype in types)


def _random_like(leaves: Sequence[Any]) -> list[np.ndarray]:
    """Numbers as a model's first weights: normal, over the root of the fan-in, from a stock that is repeated."""
    stock = np.random.default_rng(0).normal(size=PERIOD).astype(np.float32)
    drawn, at = [], 0
    for leaf in leaves:
        fan_in = max(1, leaf.size // max(1, leaf.shape[-1])) if len(leaf.shape) > 1 else 4
        drawn.append((np.resize(np.roll(stock, at), leaf.shape) / np.sqrt(fan_in)).astype(leaf.dtype))
        at -= leaf.size
    return drawn


def check_objective(loss: LossFn, train: Any, params: Params, sizes: np.ndarray) -> None:
    """An objective must not see padding, where a client's last batch has some.

    Raises:
      ValueError: a loss under a mask of False changes the objective or its gradient.
    """
    objective = loss.objective if isinstance(loss, LocalLoss) else erm
    if objective is erm or not isinstance(train, LocalSGD) or not _pads(train, sizes):
        return
    model = jax.tree.map(lambda leaf: np.broadcast_to(np.asarray(0.1, leaf.dtype), leaf.shape), params)

    def both(losses: Any, mask: Any, params: Any) -> Any:
        return jax.value_and_grad(lambda values: objective(values, mask, params, params))(losses)

    losses = np.array([0.4, 1.3, 7.7], jnp.result_type(float))
    mask = np.array([True, True, False])
    try:
        padded, full = (jax.make_jaxpr(both)(losses[:n], mask[:n], params) for n in (3, 2))
    except (IndexError, TypeError, ValueError):
        return  # made for larger batches
    leaves = jax.tree.leaves(model)
    if not (is_concrete(padded) and is_concrete(full)):
        return
    for by in (evaluate, by_jax):  # JAX has the last word
        wanted = np.concatenate([np.ravel(part) for part in by(full, losses[:2], mask[:2], *leaves)])
        for garbage in (7.7, 0.1):
            values = np.array([*losses[:2], garbage], losses.dtype)
            got = np.concatenate([np.ravel(part) for part in by(padded, values, mask, *leaves)])
            if not np.allclose(got, [*wanted, 0], rtol=1e-3, atol=1e-5, equal_nan=True):
                break
        else:
            return
    raise ValueError(
        "objective must leave out losses whose mask is False, such as the padding of a last batch, but one of them "
        "changes its value or gradient: average with (losses * mask).sum() / mask.sum()"
    )


def _pads(train: LocalSGD, sizes: np.ndarray) -> bool:
    """Whether any batch of these clients is padded."""
    if train.steps is not None:
        return False
    if train.batch_size is None:
        return bool((sizes != sizes.max()).any())
    return bool((sizes % min(train.batch_size, int(sizes.max()))).any())
