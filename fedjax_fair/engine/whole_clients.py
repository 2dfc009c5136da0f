"""Metrics of whole clients, of what an evaluation keeps of their examples."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.data import FederatedData, Split
from fedjax_fair.models.client_metrics import Whole


def by_client(
    wholes: Sequence[Whole], kept: Sequence[Array], data: FederatedData, split: Split, capacity: int
) -> tuple[Array, ...]:
    """The metrics, f[N] each, of what is kept of the clients' examples, [all, ...], client after client; NaN for a
    client without."""
    y, last = data.take(split.rows)[1], split.rows.shape[0] - 1
    places = jnp.arange(capacity)

    def one(client: tuple[Array, Array]) -> tuple[Array, ...]:
        start, size = client
        rows = jnp.minimum(start + places, last)
        return of_client(wholes, [array[rows] for array in kept], y[rows], size)

    return jax.lax.map(one, (split.start, split.size))


def of_client(wholes: Sequence[Whole], kept: Sequence[Array], y: Array, size: Array) -> tuple[Array, ...]:
    """The metrics, f[] each, of a client's first ``size`` examples; NaN where it has none."""
    places, mask = kept_of(wholes), jnp.arange(y.shape[0]) < size
    values = (of.of_kept(kept[places.index(of.each)], y, mask) for of in wholes)
    return tuple(jnp.where(size > 0, value, jnp.nan).astype(jnp.result_type(float)) for value in values)


def kept_of(wholes: Sequence[Whole]) -> list[Any]:
    """What metrics of whole clients keep of an example, each once: several may go by the outputs themselves."""
    found: list[Any] = []
    for of in wholes:
        found += [] if of.each in found else [of.each]
    return found
