"""What a model says of every example of a split: the global one, or each client's own of that client's examples."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from fedjax_fair.data import FederatedData
from fedjax_fair.engine.devices import shared_out
from fedjax_fair.engine.freezing import Freezing, of_whole
from fedjax_fair.engine.personal import ModelOf, own_model, width_of
from fedjax_fair.engine.signals import Score, every_example, examples
from fedjax_fair.models import Model
from fedjax_fair.models.rewriting import fast
from fedjax_fair.types import Memory, Params

PLACES = ("train", "validation", "test")

Outputs = Callable[..., Array]
"""``(params, data, memory) -> [R, ...]``, example after example as the split lists them; of personal models
[N, M, ...], client after client, padded to the largest."""


def outputs_of(
    frozen: Freezing, net: Model, data: FederatedData, memory: Memory | None, eval_batch: int, mesh: Mesh | None
) -> dict[str, Outputs]:
    """Per split that has examples, and "test@personal" where clients have models of their own."""
    found = {}
    for name in PLACES:
        largest = int(np.asarray(getattr(data, name).size).max())
        if not largest:
            continue
        found[name] = of_whole(frozen, net, partial(_shared, name, eval_batch, mesh))
        if memory is not None and memory.personal is not None:
            found[f"{name}@personal"] = of_whole(
                frozen, net, partial(_personal, name, eval_batch, mesh, memory, largest)
            )
    return found


def _outputs(net: Model) -> Score:
    apply = fast(net).apply
    return lambda params, x, y: (apply(params, x, None),)


def _shared(name: str, eval_batch: int, mesh: Mesh | None, net: Model) -> Outputs:
    score = _outputs(net)

    def outputs(params: Params, data: FederatedData, memory: Any = None) -> Array:
        return every_example(score, params, data, getattr(data, name), eval_batch, mesh)[0]

    return outputs


def _personal(name: str, eval_batch: int, mesh: Mesh | None, memory: Memory, largest: int, net: Model) -> Outputs:
    score = _outputs(net)

    def outputs(params: Params, data: FederatedData, kept: Any) -> Array:
        split, model, width = getattr(data, name), own_model(memory.personal, params, kept), width_of(params)
        each = max(1, min(eval_batch // width, largest))
        one = partial(_of_client, score, model, data, split, each, -(-largest // each))
        ids = jnp.arange(split.size.shape[0], dtype=jnp.int32)
        return shared_out(lambda some: jax.lax.map(one, some, batch_size=width), ids, mesh)

    return outputs


def _of_client(
    score: Score, model: ModelOf, data: FederatedData, split: Any, each: int, steps: int, id: Array
) -> Array:
    """[steps * each, ...]: the client's own model on its examples, and on others' behind them."""
    mine, last = model(id), split.rows.shape[0] - 1

    def some(step: Array) -> Array:
        places = jnp.minimum(split.start[id] + step * each + jnp.arange(each), last)
        return score(mine, *examples(data, split.rows[places]))[0]

    found = jax.lax.map(some, jnp.arange(steps))
    return found.reshape(-1, *found.shape[2:])
