"""Rows of a table by one core of a CPU: the rows that jnp.take reads, in no kernel that two cores share."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_fair.engine.tasks import threads_for
from fedjax_fair.numerics.table_rows import LITTLE, MANY, MUCH, entries_from, rows_of

TABLE = np.random.default_rng(0).normal(size=(MUCH // 80, 4, 5)).astype(np.float32)
BEYOND = np.array([7, 0, 7, len(TABLE) - 1, len(TABLE) + 5, -3, 2], np.int32)


@pytest.mark.parametrize("rows", [BEYOND, BEYOND[:2], BEYOND[:1], BEYOND[:0], BEYOND[:6].reshape(2, 3)], ids=len)
@pytest.mark.parametrize(
    "table", [TABLE, TABLE.astype(np.uint8), TABLE[:9], np.arange(MUCH)], ids=["much", "u8", "few", "y"]
)
def test_rows_are_those_that_take_reads(table, rows):
    wanted = jnp.take(jnp.array(table), rows, axis=0, mode="clip")
    for way in (rows_of, jax.jit(rows_of)):
        found = way(jnp.array(table), jnp.array(rows))
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("slices", [False, True])
@pytest.mark.parametrize("many", [1, 3, 7, 10])
@pytest.mark.parametrize("start", range(8))
def test_entries_that_follow_one_another_end_with_the_last_again(start, many, slices, monkeypatch):
    monkeypatch.setattr("fedjax_fair.numerics.table_rows.MANY", 0 if slices else MANY)
    table = jnp.arange(7) * 11
    wanted = table[np.minimum(start + np.arange(many), 6)]
    np.testing.assert_array_equal(jax.jit(lambda start: entries_from(table, start, many))(start), wanted)
    of_both = jax.vmap(lambda start: entries_from(table, start, many))(np.array([0, start]))
    np.testing.assert_array_equal(of_both, [table[np.minimum(np.arange(many), 6)], wanted])


def test_tables_and_rows_may_be_mapped_and_the_table_differentiated():
    tables, rows = jnp.stack([TABLE, TABLE + 1]), jnp.stack([BEYOND, BEYOND[::-1]])
    for axes in ((0, 0), (None, 0), (0, None)):
        given = (tables if axes[0] == 0 else tables[0], rows if axes[1] == 0 else rows[0])
        found = jax.vmap(rows_of, axes)(*given)
        np.testing.assert_array_equal(found, jax.vmap(lambda t, r: jnp.take(t, r, 0, mode="clip"), axes)(*given))
        assert "dynamic_update_slice" not in str(jax.make_jaxpr(jax.vmap(rows_of, axes))(*given))  # for all cores
    counts = jax.grad(lambda t: rows_of(t, BEYOND).sum())(jnp.array(TABLE))[:, 0, 0]
    assert (counts[7], counts[0], counts[-1], counts[1]) == (2, 2, 2, 0)


ON_CORES = pytest.mark.skipif(threads_for(None) < 2, reason="there is no second core to be called")


@ON_CORES
def test_no_second_core_is_called_for_few_rows_of_a_large_table():
    """As one is for a plain gather; without that the module is not needed any more."""
    table = jnp.zeros((8 * MUCH // 240, 60))

    def shared(read, many):
        def steps(table, rows):
            def step(w, rows):
                x = read(table, rows)
                return w - x.T @ jnp.tanh(x @ w), None

            return jax.lax.scan(step, jnp.zeros((60, 3)), rows)[0]

        text = jax.jit(steps).lower(table, jnp.zeros((4, many), jnp.int32)).compile().as_text()
        return len(re.findall(r'"outer_dimension_partitions":\["\d', text))

    for many in (2, 50, LITTLE // 240):
        assert shared(lambda table, rows: jnp.take(table, rows, axis=0, mode="clip"), many) == 1
        assert shared(rows_of, many) == 0
