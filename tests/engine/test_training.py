"""A cohort's training, block by block: in order, with a carry, and with what is left over."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_fair.engine.training import by_blocks


@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, None])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_blocks_are_answered_in_order(count, width):
    seen = []

    def step(total, some):
        ids, scale = some
        seen.append(len(ids))
        return total + (scale * ids).sum(), {"square": ids**2, "pair": jnp.stack([ids, -ids], 1)}

    ids, scale = jnp.arange(count)[::-1], jnp.arange(count) + 1.0
    total, got = by_blocks(step, jnp.zeros(()), (ids, scale), width)
    np.testing.assert_array_equal(got["square"], ids**2)
    np.testing.assert_array_equal(got["pair"], jnp.stack([ids, -ids], 1))
    assert total == (scale * ids).sum()
    whole = count if width is None else min(width, count)
    assert seen == [part for part in (whole, count % whole) if part]  # traced once each, however many blocks
