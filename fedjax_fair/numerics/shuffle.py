"""A random permutation that is computed where it is read: no sort, no table."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.types import Key

ROUNDS = 32
GOLDEN = np.uint32(0x9E3779B9)
"""2^32 over the golden ratio: multiples of it lie far apart."""


def shuffle_keys(key: Key, shape: tuple[int, ...] = ()) -> Array:
    """Random bits u32[*shape, ROUNDS, 3] for independent permutations of :func:`shuffled`.

    Hashes of a counter and two random words: on a CPU as many words from the generator took as long as three steps
    of a softmax regression.
    """
    first, second = jax.random.bits(key, (2,), jnp.uint32)  # in 64-bit mode, too: the same batches
    counter = jnp.arange(math.prod(shape) * ROUNDS * 3, dtype=jnp.uint32).reshape(*shape, ROUNDS, 3)
    return mix(mix(counter * GOLDEN + first) ^ second)


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
    # Unknown to the compiler: with a domain of one it would simplify round after round, one in each of its passes,
    # and XLA 0.10 gives up ("Unknown MLIR failure") where ten are not enough. To hide it costs nothing.
    n = jax.lax.optimization_barrier(jnp.asarray(n, jnp.uint32))
    pivots, offsets, factors = keys[:, 0] % n, keys[:, 1], keys[:, 2] | 1

    def swap_or_not(x: Array, drawn: tuple[Array, ...]) -> tuple[Array, None]:
        pivot, offset, factor = drawn
        partner = pivot - x
        partner = jnp.minimum(partner, partner + n)  # modulo n: what went below 0 has wrapped, and is the larger
        coin = (jnp.maximum(x, partner) + offset) * factor
        return jnp.where(coin.astype(jnp.int32) < 0, partner, x), None  # its top bit

    start = jnp.minimum(positions.astype(jnp.uint32), n - 1)

    def play(*_: Array) -> Array:
        return jax.lax.scan(swap_or_not, start, (pivots, offsets, factors), unroll=ROUNDS)[0]

    return (_in_a_kernel_of_its_own(play, start) if jax.default_backend() == "cpu" else play()).astype(jnp.int32)


def _in_a_kernel_of_its_own(play: Callable[..., Array], like: Array) -> Array:
    """``play()``, which XLA then does not fuse into the gather that reads it.

    LLVM makes no vector instructions of a gather: a shuffle that was part of one took ten times as long.
    A loop whose number of turns XLA does not know stays a loop; this one takes a single turn.
    """
    once = jax.lax.optimization_barrier(jnp.ones((), jnp.int32))
    return jax.lax.fori_loop(0, once, play, jnp.zeros_like(like))


def mix(bits: Array) -> Array:
    """Murmur3's finaliser: every input bit reaches every output bit."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)
