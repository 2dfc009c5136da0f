"""Shares of games whose shares are known by hand."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedjax_fair.numerics.shapley import STREAK, by_permutations, exact, leave_one_out, remembering

WEIGHTS = np.array([3.0, 1.0, 0.0, -2.0, 5.0])


def additive(coalitions):
    return np.stack([coalitions @ WEIGHTS, 10 + 2 * coalitions @ WEIGHTS], 1)


def gloves(coalitions):
    """A pair is worth 1: player 0 has a left glove, 1 and 2 have right ones."""
    return (coalitions[:, 0] & (coalitions[:, 1] | coalitions[:, 2]))[:, None].astype(float)


def random_game(players, measures=2):
    worth = np.random.default_rng(0).normal(size=(2**players, measures))
    return lambda coalitions: worth[coalitions @ (1 << np.arange(players))]


def draws():
    return np.random.default_rng(1)


def test_of_an_additive_game_every_player_gets_its_weight():
    for shares in (exact(additive, 5), by_permutations(additive, 5, 3, 0.0, draws()), leave_one_out(additive, 5)):
        assert_allclose(shares.values, np.stack([WEIGHTS, 2 * WEIGHTS], 1), atol=1e-12)
        assert_allclose([shares.empty, shares.grand], [[0, 10], [7, 24]])
        assert_allclose(shares.errors, 0, atol=1e-12)


def test_of_the_glove_game_the_scarce_glove_gets_most():
    assert_allclose(exact(gloves, 3).values[:, 0], [4 / 6, 1 / 6, 1 / 6])
    assert_array_equal(leave_one_out(gloves, 3).values[:, 0], [1, 0, 0])


def test_the_exact_share_is_the_mean_over_all_orders():
    game, n = random_game(4), 4
    wanted = np.zeros((n, 2))
    for order in itertools.permutations(range(n)):
        for place, k in enumerate(order):
            before, after = (np.isin(np.arange(n), order[: place + extra])[None] for extra in (0, 1))
            wanted[k] += (game(after) - game(before))[0] / 24
    assert_allclose(exact(game, n).values, wanted)


@pytest.mark.parametrize("players", [1, 2, 7])
def test_shares_add_up_to_the_gain(players):
    game = random_game(players)
    for shares in (exact(game, players), by_permutations(game, players, 2, 0.0, draws())):
        assert_allclose(shares.values.sum(0), shares.grand - shares.empty)


def test_intervals_of_permutations_cover_the_exact_shares():
    game = random_game(6, 5)
    found, wanted = by_permutations(game, 6, 3000, 0.0, draws()), exact(game, 6)
    off = np.abs(found.values - wanted.values) / found.errors
    assert off.max() < 4
    assert (off < 1.96).mean() > 0.8
    assert found.permutations == 3000
    assert found.cut == 0


def saturating(coalitions):
    """From three players on it is worth 1; by the second measure from five on, by the third always."""
    size = coalitions.sum(1)
    return np.minimum(np.stack([size / 3, size / 5, size + 1], 1), 1)


def test_a_permutation_is_cut_off_once_all_measures_have_stayed_near_the_end():
    asked = []

    def game(coalitions):
        asked.append(len(coalitions))
        return saturating(coalitions)

    found = by_permutations(game, 20, 4, 0.01, draws())
    assert asked == [2] + 4 * [4] + (STREAK + 1) * [4]  # four below, six in a row at the end
    assert found.cut == 4
    assert_allclose(found.values.sum(0), [1, 1, 0])
    assert by_permutations(saturating, 20, 4, 0.0, draws()).cut == 0


def test_what_is_cut_off_is_less_than_the_tolerance():
    def game(coalitions):
        return (1 - 0.5 ** coalitions.sum(1, keepdims=True)) * 80 + 10

    found = by_permutations(game, 30, 10, 0.02, draws())
    assert found.cut == 10
    gain = found.grand - found.empty
    assert_allclose(found.values.sum(0), gain, rtol=0.02)
    assert (found.values.sum(0) < gain).all()


def test_a_remembering_game_is_asked_once_for_each_coalition_and_a_few_at_a_time():
    asked, known, kept = [], {}, []

    def game(coalitions):
        asked.append(len(coalitions))
        return additive(coalitions)

    remembered = remembering(game, known, at_once=5, keep=lambda: kept.append(len(known)))
    found = by_permutations(remembered, 5, 100, 0.0, draws())
    assert_allclose(found.values[:, 0], WEIGHTS, atol=1e-12)
    assert sum(asked) == len(known) == 32
    assert max(asked) == 5
    assert kept == [*np.cumsum(asked)]
    again = remembering(lambda coalitions: pytest.fail("asked again"), known)
    assert_array_equal(exact(again, 5).values, exact(additive, 5).values)
