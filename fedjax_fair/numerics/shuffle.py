"""A random permutation that is computed where it is read: no sort, no table."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.types import Key

ROUNDS = 32
GOLDEN = np.uint32(0x9E3779B9)
"""2^32 over the golden ratio: multiples of it lie far apart."""
TURN = 4
"""Rounds in a turn of the loop that plays few positions. With two, 50 of them took 1.08 of the time, with eight
1.17, with all 32 at once 2.2: their random numbers then fill the processor's registers many times over."""
FEW = 100
"""Positions up to which XLA makes one kernel of such a loop, by the bytes of what it carries. A loop of several
kernels is slower where XLA's emitters of fusions are off."""


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
    size = jax.lax.optimization_barrier(jnp.asarray(n, jnp.uint32))
    drawn = keys[:, 0] % size, keys[:, 1], keys[:, 2] | 1
    start = jnp.minimum(positions.astype(jnp.uint32), size - 1)
    if jax.default_backend() != "cpu":
        return _play(start, size, drawn, ROUNDS).astype(jnp.int32)
    play = _in_turns if start.size <= FEW else _in_a_kernel_of_its_own
    return play(start, size, drawn).astype(jnp.int32)


def _play(x: Array, n: Array, drawn: tuple[Array, ...], turn: int) -> Array:
    """All rounds, ``turn`` of them in a turn of a loop."""

    def swap_or_not(x: Array, drawn: tuple[Array, ...]) -> tuple[Array, None]:
        pivot, offset, factor = drawn
        partner = pivot - x
        partner = jnp.minimum(partner, partner + n)  # modulo n: what went below 0 has wrapped, and is the larger
        coin = (jnp.maximum(x, partner) + offset) * factor
        return jnp.where(coin.astype(jnp.int32) < 0, partner, x), None  # its top bit

    return jax.lax.scan(swap_or_not, x, drawn, unroll=turn)[0]


@jax.custom_batching.custom_vmap
def _in_turns(x: Array, n: Array, drawn: tuple[Array, ...]) -> Array:
    """Few positions. Many clients' or runs' side by side are many, and go the other way."""
    return _play(x, n, drawn, TURN)


@_in_turns.def_vmap
def _side_by_side(size: int, are_mapped: list[Any], *operands: Any) -> tuple[Array, bool]:
    axes = jax.tree.map(lambda mapped: 0 if mapped else None, are_mapped)
    return jax.vmap(_in_a_kernel_of_its_own, axes, axis_size=size)(*operands), True


def _in_a_kernel_of_its_own(x: Array, n: Array, drawn: tuple[Array, ...]) -> Array:
    """Many positions, which XLA then does not fuse into the gather that reads them.

    LLVM makes no vector instructions of a gather: a shuffle that was part of one took ten times as long.
    A loop whose number of turns XLA does not know stays a loop; this one takes a single turn.
    """
    once = jax.lax.optimization_barrier(jnp.ones((), jnp.int32))
    return jax.lax.fori_loop(0, once, lambda *_: _play(x, n, drawn, ROUNDS), jnp.zeros_like(x))


def mix(bits: Array) -> Array:
    """Murmur3's finaliser: every input bit reaches every output bit."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)
