"""How many clients train side by side, and how: vmapped, or two interleaved in one loop; and how many examples go
through a model at a time.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fedjax_fair.checks import check_count
from fedjax_fair.engine.forward import forward
from fedjax_fair.local.remembering import Around
from fedjax_fair.local.sgd import LocalSGD
from fedjax_fair.models import Model
from fedjax_fair.numerics.model_size import bytes_of, is_small
from fedjax_fair.types import Params

SMALL = 2**18
"""Bytes of stacked models that clients side by side may always fill on a CPU: softmax regressions of 2 kB took 2.2
times as long one by one."""
MIDDLING = 2**20
"""Bytes of a model of dense layers or attention, if it is not small, up to which a CPU interleaves two clients.

On two cores rounds took .7 to .9 of the time that one by one or ten vmapped took with 0.2 to 1.3 MB, Adam's state
not counted, and .8 to .95 where sizes differ; 1.05 with 1.6 MB, 1.1 to 1.3 with 7 MB. Five took as long as
two and longer to compile; convolutions took 1.0, LSTMs 1.1. Transformers of .04 to 1 MB took .83 to .96, and .98 to
1.0 where sizes differ.
"""
NOT_DENSE = frozenset(["scan", "while", "conv_general_dilated"])
"""Operations of recurrent and convolutional layers."""
LOOKED_UP = frozenset(["gather"])
"""That of an embedding, which transformers begin with."""

FEWEST, MOST = 16, 512
CACHED = 2**22
"""Bytes that the largest array of a forward pass may take on a CPU: with 100 kB an example, as of the stock CNN or
of a ResNet of 8 channels, batches of 32 and of 64 take .6 of the time of those of 512."""


def are_uneven(sizes: np.ndarray) -> bool:
    """Whether clients of these sizes, side by side, would mostly wait for the largest."""
    return bool(sizes.max() > 2 * sizes.mean())


def choose_block(client_block: int | str | None, cohort: int, params: Params, sizes: np.ndarray) -> int | None:
    """How many clients train side by side, vmapped; None for the whole cohort.

    On a CPU what a convolution or an attention makes stays in cache for one client at a time (two transformers of
    130 kB side by side took 1.35 times as long), and vmapped clients of very different sizes all make as many steps
    as the largest. Either has kernels of three axes and more in flax. On an accelerator the batch wins. What
    :func:`choose_interleaved` takes does not go by this.
    """
    if client_block is None:
        return None
    if client_block != "auto":
        if isinstance(client_block, str):
            raise ValueError(f'client_block must be "auto", None or a whole number, got {client_block!r}')
        block = check_count("client_block", client_block)
        return None if block >= cohort else block
    if jax.default_backend() != "cpu":
        return None
    if any(leaf.ndim >= 3 for leaf in jax.tree.leaves(params)) or are_uneven(sizes):
        return 1
    most = max(1, SMALL // max(1, bytes_of(params)))
    if most >= cohort:
        return None
    even = max(d for d in range(1, most + 1) if cohort % d == 0)  # a smaller last block is a second program
    return even if 2 * even > most else most


def choose_interleaved(
    client_block: int | str | None, train: Any, net: Model, params: Params, example: Any
) -> LocalSGD | Around | None:
    """The trainer that trains two clients at a time in one loop, on a CPU: of middling models of dense layers or of
    attention, whose kernels have three axes in flax."""
    able = type(train) is LocalSGD or (type(train) is Around and type(train.trainer) is LocalSGD)
    if client_block != "auto" or jax.default_backend() != "cpu" or not able:
        return None
    axes = max((leaf.ndim for leaf in jax.tree.leaves(params)), default=0)
    if axes > 3 or is_small(params) or bytes_of(params) > MIDDLING:
        return None
    others = NOT_DENSE if axes == 3 else NOT_DENSE | LOOKED_UP
    return train if others.isdisjoint(forward(net, params, example).operations) else None


def choose_eval_batch(eval_batch: int | None, params: Params, widest: Callable[[], float] = lambda: 0) -> int:
    """How many examples a forward pass takes: the loop costs more than a small model's products, and on a CPU what
    a larger one makes of them is to stay in cache. ``widest() -> bytes`` of its largest array, for an example."""
    if eval_batch is not None:
        return check_count("eval_batch", eval_batch)
    if is_small(params):
        return 4096
    if jax.default_backend() != "cpu":
        return MOST
    return int(min(MOST, max(FEWEST, CACHED / max(widest(), 1) // 8 * 8)))
