"""More than one device: a round's clients and examples are shared out, everything else is on all of them alike.

``simulation(..., devices=8)`` takes the first eight devices, ``devices=Mesh(...)`` any mesh of one axis; with
``jax.distributed.initialize()`` in every process, ``devices=jax.device_count()`` spans the hosts. Each device
trains its share of the cohort and keeps the updates, or adds them up, unless something reads all of them; wherever
all clients share a model, it scores its share of the examples (of the clients, where a few of each are drawn).
Data, models and rule are the same on all. A cohort that the devices do not divide is filled up with a client who
counts once. Clients of very different sizes are dealt out by size.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

CLIENTS = "clients"

JOINED = 1 << 14
"""Entries of an array up to which it is sent with others as one: on a CPU a message takes as long as ten local
steps of a small model, 45 us, however short it is."""


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
        split = "; jax.config.update('jax_num_cpu_devices', ...) splits a CPU, before JAX makes its first array"
        hint = split if [device.platform for device in there] == ["cpu"] else ""
        raise ValueError(f"devices must be from 1 to the {len(there)} that JAX sees, got {devices}{hint}")
    return None if devices == 1 else Mesh(np.array(there[:devices]), (CLIENTS,))


def part(count: int, mesh: Mesh | None) -> int:
    """How many of ``count`` items one device has."""
    return count if mesh is None else -(-count // mesh.size)


class Deal(NamedTuple):
    """Who trains on which device; built by :func:`dealt`."""

    slots: Array
    """i32[D S'], where S' is S / D, rounded up: the cohort's slots, one device's after another's. Where a device
    has one less, the smallest client stands once more."""
    once: Array
    """bool[D S']: whether it is not that one."""
    places: Array
    """i32[S]: where each slot stands in ``slots``."""


def dealt(size: Array, mesh: Mesh) -> Deal:
    """A cohort of clients with ``size`` [S] examples, dealt out like cards: the largest first, back and forth.

    All devices wait for the one that has most to do. Rounds of a GRU with 30 clients of 10 to 470 examples, in that
    order, take .63 of the time so, on two cores.
    """
    count, each = size.shape[0], part(size.shape[0], mesh)
    turn, device = np.divmod(np.arange(each * mesh.size), mesh.size)
    device = np.where(turn % 2 == 1, mesh.size - 1 - device, device)
    rank = np.argsort(device * each + turn)  # of those on device 0, on device 1, ...
    slots = jnp.argsort(-size)[np.minimum(rank, count - 1)].astype(jnp.int32)
    once = rank < count
    places = (
        jnp.zeros((count,), jnp.int32)
        .at[jnp.where(once, slots, count)]
        .set(np.arange(len(rank), dtype=np.int32), mode="drop")
    )
    return Deal(slots, jnp.asarray(once), places)


def share(
    tree: Any, mesh: Mesh | None, fill: Literal["edge", "constant"] = "constant", deal: Deal | None = None
) -> Any:
    """Of arrays [S, ...] this device's part [S / D, ...], filled up with zeros or with the last item; as dealt.

    For use inside :func:`everywhere`, like all below.
    """
    if mesh is None:
        return tree

    def mine(leaf: Array) -> Array:
        if deal is not None:
            slots, once = (of.reshape(mesh.size, -1)[jax.lax.axis_index(CLIENTS)] for of in (deal.slots, deal.once))
            own, once = leaf[slots], once.reshape(-1, *[1] * (leaf.ndim - 1))
            return own if fill == "edge" else jnp.where(once, own, jnp.zeros((), leaf.dtype))
        each = part(leaf.shape[0], mesh)
        rest = ((0, each * mesh.size - leaf.shape[0]), *[(0, 0)] * (leaf.ndim - 1))
        parts = jnp.pad(leaf, rest, mode=fill).reshape(mesh.size, each, *leaf.shape[1:])
        return parts[jax.lax.axis_index(CLIENTS)]

    return jax.tree.map(mine, tree)


def gather(tree: Any, count: int, mesh: Mesh | None, deal: Deal | None = None) -> Any:
    """The inverse: all devices' parts, arrays [``count``, ...] on each of them."""
    if mesh is None:
        return tree

    def in_order(parts: Array) -> Array:
        devices, each, *shape = parts.shape
        return parts.reshape(devices * each, *shape)[_places(count, deal)]

    return jax.tree.map(in_order, _joined(lambda own: jax.lax.all_gather(own, CLIENTS), tree))


def _places(count: int, deal: Deal | None) -> Any:
    """Where the cohort's slots stand in what the devices have, one's after another's."""
    return slice(count) if deal is None else deal.places


def shared_out(function: Callable[[Array], Any], items: Array, mesh: Mesh | None) -> Any:
    """``function(items [S, ...])``, arrays [S, ...], of which each device does its share and hears the others'."""
    return gather(function(share(items, mesh, "edge")), items.shape[0], mesh)


def turns(mesh: Mesh | None) -> tuple[Any, int]:
    """``(d, D)``: of what is done in turns, this device does the turns d, d + D, d + 2 D, ..."""
    return (0, 1) if mesh is None else (jax.lax.axis_index(CLIENTS), mesh.size)


def added(tree: Any, mesh: Mesh | None) -> Any:
    """The sum over the devices."""
    return tree if mesh is None else _joined(lambda own: jax.lax.psum(own, CLIENTS), tree)


def _joined(send: Callable[[Array], Array], tree: Any) -> Any:
    """``send`` of every array, of small ones of one type as one array. What is received may have axes in front."""
    leaves, structure = jax.tree.flatten(tree)
    messages: dict[Any, list[int]] = {}
    for place, leaf in enumerate(leaves):
        messages.setdefault(leaf.dtype if leaf.size <= JOINED else place, []).append(place)
    received: dict[int, Array] = {}
    for places in messages.values():
        if len(places) == 1:
            received[places[0]] = send(leaves[places[0]])
            continue
        parts = [leaves[place] for place in places]
        whole = send(jnp.concatenate([part.ravel() for part in parts]))
        split = jnp.split(whole, np.cumsum([part.size for part in parts])[:-1], axis=-1)
        for place, part, flat in zip(places, parts, split):
            received[place] = flat.reshape(*whole.shape[:-1], *part.shape)
    return jax.tree.unflatten(structure, [received[place] for place in range(len(leaves))])


def added_and_gathered(
    tree: Any, flags: Array, count: int, mesh: Mesh | None, deal: Deal | None = None
) -> tuple[Any, Array]:
    """The sum of ``tree`` over the devices and, in the same message, all devices' ``flags``, bool[``count``]."""
    if mesh is None:
        return tree, flags
    kind = jax.tree.leaves(tree)[0].dtype
    own = jnp.zeros((mesh.size, *flags.shape), kind).at[jax.lax.axis_index(CLIENTS)].set(flags.astype(kind))
    tree, everybodys = added((tree, own), mesh)
    return tree, everybodys.ravel()[_places(count, deal)] > 0


def everywhere(function: Callable[..., Any], mesh: Mesh | None) -> Callable[..., Any]:
    """``function`` on every device of the mesh, from the same arguments to the same results.

    A manual region: left to itself, the compiler shares out even a rule's vector of S numbers, and then talks in
    every step of its loops.
    """
    if mesh is None:
        return function
    return lambda *args: _by_hand(lambda alike, _: function(*alike), mesh, args)


def on_shares(function: Callable[[Any, Any], Any], mesh: Mesh, alike: Any, items: Any) -> Any:
    """``function(alike, items)``, arrays [S, ...] of arrays [S, ...], of which each device does its share alone."""
    return _by_hand(function, mesh, alike, items, shares=mesh.size)


def _by_hand(function: Callable[[Any, Any], Any], mesh: Mesh, alike: Any, items: Any = (), shares: int = 1) -> Any:
    """A manual region; with more than one share of ``items`` each device makes its share of the results."""
    same, own = PartitionSpec(), PartitionSpec(CLIENTS)
    (given, without), (parts, without_parts) = _filled(alike), _filled(items)
    made: list[Without] = []

    def on_one(given: list[Array], parts: list[Array]) -> list[Array]:
        mine = function(_refilled(given, without), _refilled(parts, without_parts, lambda size: size // shares))
        found, rest = _filled(mine)
        made.append(rest)
        return found

    # A loop's carry begins the same on all devices and ends device by device: no trainer can declare that.
    split = jax.shard_map(
        on_one, mesh=mesh, in_specs=(same, own), out_specs=own if shares > 1 else same, check_vma=False
    )
    return _refilled(split(given, parts), made[-1], lambda size: size * shares)


class Without(NamedTuple):
    """A tree but for its arrays that have entries."""

    structure: Any
    shapes: list[Any]
    """Those of its arrays without entries, None for the others."""


def _filled(tree: Any) -> tuple[list[Any], Without]:
    """The arrays that have entries, and what :func:`_refilled` needs. jaxlib 0.11 crashes where a manual region
    takes or returns one without, such as the kernel of a layer without outputs."""
    leaves, structure = jax.tree.flatten(tree)
    shapes = [None if jnp.size(leaf) else jax.typeof(leaf) for leaf in leaves]
    return [leaf for leaf in leaves if jnp.size(leaf)], Without(structure, shapes)


def _refilled(leaves: Iterable[Any], rest: Without, first: Callable[[int], int] = lambda size: size) -> Any:
    """The tree again, its arrays without entries made anew, with another ``first`` dimension."""
    full = iter(leaves)
    empty = [s if s is None else jnp.zeros((first(s.shape[0]), *s.shape[1:]), s.dtype) for s in rest.shapes]
    return jax.tree.unflatten(rest.structure, [next(full) if leaf is None else leaf for leaf in empty])


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
