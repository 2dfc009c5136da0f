"""More than one device: a round's clients shared out over a mesh, everything else on all of them alike.

``simulation(..., devices=8)`` takes the first eight devices, ``devices=Mesh(...)`` any mesh of one axis; with
``jax.distributed.initialize()`` in every process, ``devices=jax.device_count()`` spans the hosts. Each device
trains its share of the cohort and gathers the others' updates; data, models, rule and evaluation are the same on
all. A cohort that the devices do not divide is filled up with repetitions of one client, which counts once.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

CLIENTS = "clients"


def as_mesh(devices: Any) -> Mesh | None:
    """A mesh of one axis, "clients"; None for one device.

    Raises:
      ValueError: not a number of devices that there are, nor a mesh of one axis.
    """
    if isinstance(devices, Mesh):
        if len(devices.axis_names) != 1:
            raise ValueError(f"devices must be a mesh of one axis, got {devices.axis_names}")
        return Mesh(devices.devices.ravel(), (CLIENTS,))
    there = jax.devices()
    if isinstance(devices, bool) or not isinstance(devices, (int, np.integer)):
        raise ValueError(f"devices must be a number of devices or a jax.sharding.Mesh, got {devices!r}")
    if not 1 <= devices <= len(there):
        raise ValueError(f"devices must be from 1 to the {len(there)} that JAX sees, got {devices}")
    return None if devices == 1 else Mesh(np.array(there[:devices]), (CLIENTS,))


def shared_out(train: Callable[..., Any], mesh: Mesh | None) -> Callable[..., Any]:
    """``train(params, data, ids [S], key, round)``, of which each device does its share and hears of the others'.

    For use inside :func:`everywhere`.
    """
    if mesh is None:
        return train
    count = mesh.size

    def call(params: Any, data: Any, ids: Array, key: Array, round: Array) -> Any:
        filled = jnp.concatenate([ids, jnp.repeat(ids[:1], -ids.shape[0] % count)])
        mine = filled.reshape(count, -1)[jax.lax.axis_index(CLIENTS)]
        found = jax.lax.all_gather(train(params, data, mine, key, round), CLIENTS, tiled=True)
        return jax.tree.map(lambda leaf: leaf[: ids.shape[0]], found)

    return call


def everywhere(function: Callable[..., Any], mesh: Mesh | None) -> Callable[..., Any]:
    """``function`` on every device of the mesh, from the same arguments to the same results.

    A manual region: left to itself, the compiler shares out even a rule's vector of S numbers, and then talks in
    every step of its loops.
    """
    if mesh is None:
        return function
    alike = PartitionSpec()
    # A loop's carry begins the same on all devices and ends device by device: no user's trainer can declare that.
    return jax.shard_map(function, mesh=mesh, in_specs=alike, out_specs=alike, check_vma=False)


def replicate(tree: Any, mesh: Mesh | None) -> Any:
    """The arrays on every device of the mesh, those of other processes included."""
    if mesh is None:
        return tree
    alike = NamedSharding(mesh, PartitionSpec())

    def put(leaf: Any) -> Array:
        if isinstance(leaf, jax.core.Tracer):
            return leaf
        if jax.dtypes.issubdtype(
            leaf.dtype, jax.dtypes.prng_key
        ):  # which cannot be put on other processes' devices
            words = jax.device_put(jax.random.key_data(leaf), alike)
            return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf))
        return jax.device_put(leaf, alike)

    return jax.tree.map(put, tree)
