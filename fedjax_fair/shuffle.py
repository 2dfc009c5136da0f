"""A random permutation that is computed where it is read: no sort, no table."""

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.types import Key

ROUNDS = 32


def shuffle_keys(key: Key, shape: tuple[int, ...] = ()) -> Array:
    """Random bits u32[*shape, ROUNDS, 3] for independent permutations of :func:`shuffled`."""
    return jax.random.bits(key, (*shape, ROUNDS, 3))


def shuffled(keys: Array, positions: Array, n: Array | int) -> Array:
    r"""Where a random permutation of ``0 ... n - 1`` sends ``positions``: i32, of the same shape.

    The swap-or-not shuffle: in every round each pair :math:`\{x, K_r - x \bmod n\}` is swapped or left, by a
    coin that hashes the pair: the top bit of a random odd multiple of its larger member, shifted at random. A
    bijection for every ``n`` and every key; O(1) per position, whereas sorting random numbers costs more than the
    training step of a small model, and must pad every client to the largest. Positions from ``n`` on give
    something below ``n``.

    Args:
      keys: u32[ROUNDS, 3] from :func:`shuffle_keys`.
      positions: i32[...].
      n: size of the domain, at least 1; may be traced.

    Source: Hoang, Morris, Rogaway, An enciphering scheme based on a card shuffle, CRYPTO 2012; multiply-shift
    hashing (Dietzfelbinger et al., 1997) in place of their pseudo-random function: statistics are the point here,
    not secrecy.
    """
    pivots = (keys[:, 0] % jnp.asarray(n, jnp.uint32)).astype(jnp.int32)
    x = jnp.minimum(positions.astype(jnp.int32), jnp.asarray(n, jnp.int32) - 1)
    for r in range(ROUNDS):
        partner = pivots[r] - x
        partner = jnp.where(partner < 0, partner + n, partner)
        coin = (jnp.maximum(x, partner).astype(jnp.uint32) + keys[r, 1]) * (keys[r, 2] | 1)
        x = jnp.where(coin >> 31 == 1, partner, x)
    return x


def mix(bits: Array) -> Array:
    """Murmur3's finaliser: every input bit reaches every output bit."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)
