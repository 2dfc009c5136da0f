"""What clients keep between their rounds: N memories, of which a round reads and writes its cohort's."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh

from fedjax_fair.engine.room import in_words, room
from fedjax_fair.engine.watch import say
from fedjax_fair.numerics.model_size import bytes_of
from fedjax_fair.numerics.solvers import scatter
from fedjax_fair.types import Memory, Method, Params, SimState

MUCH = 1 / 4
"""Share of a device's memory from which clients' is worth a warning: a round needs room beside it."""


def first_memory(memory: Memory | None, params: Params, n_clients: int) -> Any:
    """Every client's before its first round, leaves [N, ...]; None where nobody keeps any."""
    if memory is None:
        return None
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (n_clients, *jnp.shape(leaf))), memory.init(params))


def broadcaster(method: Method) -> Callable[[SimState], Any]:
    """``state -> what the server sends everybody besides the model``; None for nothing."""
    send = None if method.memory is None else method.memory.broadcast
    if send is None:
        return lambda state: None
    if method.transform is None:
        return lambda state: send(state.aggregator)
    return lambda state: send(state.server[0])  # the optimiser's state is its second half


def written(before: Any, ids: Array, new: Any, active: Array) -> Any:
    """The memories [N, ...] after a round, of which the clients ``active`` bool[S] have written theirs."""
    return jax.tree.map(lambda old, own: scatter(old, ids, own, active), before, new)


def check_memory(method: Method, params: Params, n_clients: int, mesh: Mesh | None) -> None:
    """The memory's functions fit together, and N of them fit into a device; traced, nothing computed.

    Raises:
      ValueError: a ``personal`` model of another form than the model's, or more bytes than there are.
    """
    if method.memory is None:
        return
    if not isinstance(method.memory, Memory):
        raise ValueError(f"memory of a Method must be an ff.Memory, got {type(method.memory).__name__}")
    one = jax.eval_shape(method.memory.init, params)
    if method.memory.personal is not None:
        own = jax.eval_shape(method.memory.personal, params, one)
        form, wanted = (str(jax.tree.map(lambda leaf: list(leaf.shape), tree)) for tree in (own, params))
        if form != wanted:
            raise ValueError(f"personal must return a model of the form of the server's, {wanted}, got {form}")
    copies = 1 if mesh is None or jax.default_backend() != "cpu" else len(mesh.local_devices)
    bytes_all, there = n_clients * bytes_of(one) * copies, room()
    what = f"the memory of {n_clients} clients, {in_words(bytes_of(one))} each, takes {in_words(bytes_all)}"
    if there and bytes_all > there:
        raise ValueError(
            f"{what}, but the device has {in_words(there)}: take fewer clients, a smaller model, or a method that "
            "keeps less"
        )
    say([f"{what} of the device's {in_words(there)}"] if there and bytes_all > MUCH * there else [])
