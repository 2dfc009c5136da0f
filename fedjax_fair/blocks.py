"""How many clients train side by side."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.extend.core import Jaxpr
from jax.sharding import Mesh

from fedjax_fair.checks import check_count
from fedjax_fair.local import LocalSGD
from fedjax_fair.models import Model
from fedjax_fair.turned import programs
from fedjax_fair.types import Params

SMALL = 2**18
"""Bytes of stacked models that clients side by side may always fill on a CPU: softmax regressions of 2 kB took 2.2
times as long one by one."""
FEW, CACHE = 10, 2**23
"""Where clients do the same work on dense layers, so many train side by side, on all devices together, if their
models and optimisers' states fill at most ``CACHE`` bytes: 100 MLPs of 0.6 MB took 1.1 to 1.2 times as long one by
one, and 1.3 to 1.7 times all at once. LSTMs and convolutions took 1.2 to 1.5 times as long ten at a time as one by
one, MLPs on 300 to 700 examples 1.1 times, with half of the clients late 1.35 times."""
EVEN = 1.1
"""The largest client's examples over the mean's up to which clients do the same work."""
NOT_DENSE = frozenset(["scan", "while", "gather", "conv_general_dilated"])
"""Operations of recurrent, embedding and convolutional layers."""


def choose_block(
    client_block: int | str | None,
    cohort: int,
    params: Params,
    sizes: np.ndarray,
    held: int | None = None,
    devices: int = 1,
) -> int | None:
    """How many clients train side by side on each of ``devices`` that share a cache; None for its whole cohort.

    On a CPU a convolution's patches stay in cache for one client at a time, vmapped clients of very different sizes
    all make as many steps as the largest, and what clients of a block hold should stay in cache from step to step:
    ``held`` is :func:`bytes_held`. On an accelerator the batch wins.
    """
    if client_block is None:
        return None
    if client_block != "auto":
        block = check_count("client_block", client_block)
        return None if block >= cohort else block
    if jax.default_backend() != "cpu":
        return None
    if any(leaf.ndim >= 4 for leaf in jax.tree.leaves(params)) or sizes.max() > 2 * sizes.mean():
        return 1
    most = max(1, SMALL // max(1, _bytes(params)))
    if held is not None and sizes.max() <= EVEN * sizes.mean():
        most = max(most, min(FEW, CACHE // max(1, held)) // devices)
    if most >= cohort:
        return None
    even = max(d for d in range(1, most + 1) if cohort % d == 0)  # a smaller last block is a second program
    return even if 2 * even > most else most


def bytes_held(train: Any, net: Model, params: Params, example: Any) -> int | None:
    """A client's model and optimiser state; None where clients may do more than the same work on dense layers."""
    if not isinstance(train, LocalSGD) or train.limit is not None:
        return None
    if any(leaf.ndim > 2 for leaf in jax.tree.leaves(params)):
        return None
    forward = jax.make_jaxpr(lambda params, x: net.apply(params, x, None))(params, example)
    if not NOT_DENSE.isdisjoint(_operations(forward.jaxpr)):
        return None
    return _bytes((params, jax.eval_shape(train.optimizer.init, params)))


def neighbours(mesh: Mesh | None) -> int:
    """How many devices of a mesh share a machine, where most do; the same number in every process."""
    return 1 if mesh is None else max(Counter(device.process_index for device in mesh.devices.flat).values())


def _bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _operations(program: Jaxpr) -> Iterator[str]:
    for step in program.eqns:
        yield step.primitive.name
        for inner in programs(step):
            yield from _operations(inner.jaxpr)
