"""One rule that stands for several: it weighs as the chosen one does, and the others keep their memories."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fedjax_fair as ff
from fedjax_fair.aggregators.one_of import one_of
from fedjax_fair.reads import reads, toy_report

RULES = [ff.fedmaba(), ff.afl(), ff.loss_proportional()]
SIZES, KEY = jnp.arange(1.0, 5.0), jax.random.key(0)
REPORT = toy_report(4, jnp.zeros(2))._replace(loss=jnp.array([0.1, 2.0, 0.7, 1.0]))


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("traced", [False, True])
def test_it_weighs_as_the_chosen_rule(which, traced):
    rule = RULES[which]
    begun = one_of(RULES, which).init(SIZES, KEY)

    def weigh(number):
        return one_of(RULES, number).weigh(begun, REPORT, KEY)

    coef, after = (jax.jit(weigh) if traced else weigh)(jnp.int32(which))
    alone, moved = rule.weigh(rule.init(SIZES, KEY), REPORT, KEY)
    assert_allclose(coef, alone, rtol=1e-6)
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-6), after[which], moved)
    for other in {0, 1, 2} - {which}:
        jax.tree.map(assert_array_equal, after[other], begun[other])


def test_side_by_side_each_run_has_its_own_rule():
    begun = one_of(RULES, 0).init(SIZES, KEY)
    coefs = jax.vmap(lambda which: one_of(RULES, which).weigh(begun, REPORT, KEY)[0])(jnp.arange(3))
    alone = [rule.weigh(rule.init(SIZES, KEY), REPORT, KEY)[0] for rule in RULES]
    assert_allclose(coefs, np.stack(alone), rtol=1e-6)


def test_it_reads_what_any_of_the_rules_reads_and_nothing_else():
    assert reads(one_of([ff.fedavg(), ff.fedavg("uniform")], jnp.int32(0))) == ("n",)
    assert reads(one_of([ff.fedavg(), ff.afl()], jnp.int32(0))) == ("n", "loss")


def test_losses_must_be_positive_where_one_of_the_rules_says_so():
    assert one_of([ff.afl(), ff.loss_proportional()], 0).weigh.positive_losses
    assert not one_of([ff.afl(), ff.fedmaba()], 0).weigh.positive_losses
