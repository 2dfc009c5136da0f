"""What a trained model says of every client's examples, and which classes it takes for which."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_fair.checks import check_choice, check_count, check_truth
from fedjax_fair.engine.outputs import PLACES
from fedjax_fair.engine.start import own_state
from fedjax_fair.numerics.xla_options import compiled, of_rounds
from fedjax_fair.types import SimState, Simulation


class Prediction(NamedTuple):
    """What a model says of the n examples that one client has in a split, in NumPy arrays."""

    outputs: np.ndarray
    """[n, ...]: the model's outputs, such as logits [n, C]."""
    y: np.ndarray
    """[n] or [n, ...]: labels or targets."""
    rows: np.ndarray
    """i32[n]: the examples themselves are ``data.take(rows)``."""


def predict(
    sim: Simulation, state: SimState, split: str = "test", personal: bool = False
) -> dict[str | int, Prediction]:
    """The outputs of every client's examples, with the labels beside them.

    The model is the one that ``sim`` deploys of ``state``, in evaluation, and computes what ``sim.evaluate`` does.
    All outputs of the split are held at once. Another call for the same ``sim`` and split compiles nothing.

    Args:
      sim: from :func:`fedjax_fair.simulation`.
      state: what ``ff.run`` left, or ``sim.init(key)``.
      split: "test", "validation" or "train".
      personal: whether every client's own model speaks, of methods such as ``ff.ditto()``.

    Returns:
      Per client, by its name (``data.clients``) or else its number, a ``Prediction``, in the clients' order. Its
      ``outputs`` [n, ...], ``y`` [n, ...] and ``rows`` i32[n] have the client's own length n; 0 for one without
      examples in the split.

    Raises:
      ValueError: a state of another simulation, a split that the data do not have, or ``personal`` where clients
        have no models of their own.

    >>> found = ff.predict(sim, state)  # those of the example of ff.run
    >>> [p.outputs.shape for p in found.values()]
    [(191, 10), (17, 10), (44, 10), (488, 10)]
    """
    if not isinstance(sim, Simulation):
        raise ValueError(f"sim must be an ff.simulation(...), got {type(sim).__name__}")
    check_choice("split", split, PLACES)
    check_truth("personal", personal)
    state = own_state(state, sim)
    if sim.check is not None:
        sim.check(sim.data)
    known = sim.outputs or {}
    if split not in known or not getattr(sim.data, split).rows.shape[0]:
        raise ValueError(f"split asks for {split} examples, but the data has none: give split a share for them")
    name = f"{split}@personal" if personal else split
    if name not in known:
        raise ValueError("personal asks for clients' own models, but the aggregator has none, as ff.ditto() has")
    outputs = np.asarray(_predicted(state, sim.data, outputs=known[name], deploy=sim.deploy))
    table = getattr(sim.data, split)
    rows, start, size = (np.asarray(part) for part in (table.rows, table.start, table.size))
    if personal and size.max() > outputs.shape[1]:
        raise ValueError(
            f"data must have at most {outputs.shape[1]} {split} examples a client, as at first, got {size.max()}"
        )
    y = np.asarray(sim.data.y)[rows]
    names = range(len(size)) if sim.data.clients is None else sim.data.clients
    found: dict[str | int, Prediction] = {}
    for k, client in enumerate(names):
        mine = slice(int(start[k]), int(start[k] + size[k]))
        found[client] = Prediction(outputs[k, : size[k]] if personal else outputs[mine], y[mine], rows[mine])
    return found


@partial(compiled, choices=of_rounds(), static_argnames=("outputs", "deploy"))
def _predicted(state: SimState, data: Any, *, outputs: Any, deploy: Any) -> jax.Array:
    return outputs(deploy(state), data, state.memory)


def confusion(
    predictions: Mapping[Any, Prediction] | Prediction, classes: int | None = None
) -> dict[Any, np.ndarray] | np.ndarray:
    r"""Which classes are taken for which, client by client.

    .. math:: M^k_{ab} = \#\{i : y_i = a,\ \hat y_i = b\}

    over the examples i of client k, where :math:`\hat y` is the class of the largest logit, or of one logit whether
    it is above 0. The diagonal over its sum along b is the recall, along a the precision. An example with a NaN
    among its logits has no class and is refused.

    Args:
      predictions: what ``ff.predict`` returned, or one client's.
      classes: how many there are; by default as many as outputs, and 2 for one output.

    Returns:
      Per client i64[C, C], rows the labels and columns what the model says; of one client's its matrix. The sum
      ``sum(ff.confusion(found).values())`` is everybody's.

    Raises:
      ValueError: outputs that are no logits [n, C], [n, 1] or [n], labels that are no classes, or NaN.

    >>> outputs, labels = np.array([[2.0, 1.0], [0.0, 3.0]]), np.array([0, 0])
    >>> ff.confusion(ff.Prediction(outputs, labels, rows=np.arange(2)))
    array([[1, 1],
           [0, 0]])
    """
    if isinstance(predictions, Prediction):
        return _matrix(predictions, classes, "")
    if not isinstance(predictions, Mapping) or not all(isinstance(p, Prediction) for p in predictions.values()):
        raise ValueError(f"predictions must be what ff.predict returned, got {type(predictions).__name__}")
    return {client: _matrix(mine, classes, f" of client {client}") for client, mine in predictions.items()}


def _matrix(mine: Prediction, classes: int | None, whose: str) -> np.ndarray:
    outputs, y = mine.outputs, mine.y
    one = outputs.ndim == 1 or outputs.shape[1:] == (1,)
    if y.ndim != 1 or y.dtype.kind not in "iu" or outputs.ndim > 2:
        raise ValueError(
            "confusion needs logits [n, C], or one logit [n] or [n, 1], and integer labels [n], got outputs "
            f"{list(outputs.shape)} and labels {y.dtype}{list(y.shape)}{whose}"
        )
    if np.isnan(outputs).any():
        raise ValueError(f"confusion needs logits that are numbers, got NaN in the outputs{whose}")
    said = (outputs.reshape(-1) > 0).astype(int) if one else outputs.argmax(1)
    least = 2 if one else outputs.shape[1]
    count = least if classes is None else check_count("classes", classes, low=least)
    if len(y) and y.min() < 0:
        raise ValueError(f"labels must be classes 0, 1, ..., got {y.min()}{whose}")
    if len(y) and y.max() >= count:
        raise ValueError(f"classes must be more than the largest label, {y.max()}{whose}, got {count}")
    matrix = np.zeros((count, count), np.int64)
    np.add.at(matrix, (y, said), 1)
    return matrix
