"""``check_rule`` passes every stock rule and finds what is wrong with a user's."""

import jax
import jax.numpy as jnp
import pytest

import fedjax_fair as ff
from fedjax_fair import registry


@pytest.mark.parametrize("name", ["fedavg", "qfedavg", "fedmaba", "aaggff_d", "fedfv"])
def test_stock_rules_keep_their_promises(name):
    said = ff.check_rule(registry.make_rule(name, learning_rate=0.1))
    assert said.startswith("keeps its promises; reads ")
    assert ("nonnegative and sum to 1" in said) == (name not in ("qfedavg", "fedfv"))


def careful(state, coef, report, key, losses):
    """Half the step, unless the clients' losses fall: nonsense for who is absent, or for losses below 0."""
    step = jax.tree.map(lambda u: jnp.tensordot(coef, u, 1), report.updates)
    after = jnp.log(losses(step, report.ids))
    return jnp.where(report.active & (after < jnp.log(report.loss + 1)), coef, coef / 2), state


SECOND = {
    "fedmdfg": ff.fedmdfg(line_search=3),
    "drfa": ff.drfa(),
    "own": ff.Method(ff.fedmaba(), revise=careful),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_looks_keep_their_promises(name):
    assert ff.check_rule(SECOND[name]).startswith("keeps its promises; reads ")


def rule(weigh, init=lambda sizes, key: ()):
    return ff.Aggregator(init, weigh)


def even(report):
    return jnp.where(report.active, 1.0, 0.0) / report.active.sum()


BROKEN = {
    "returns a pair, coefficients and state, got": lambda s, r, k: even(r),
    "gives finite coefficients with losses of zero": lambda s, r, k: (
        jnp.where(r.active, r.loss, 0) / r.loss.sum(),
        s,
    ),
    "gives finite coefficients with a loss of 10000": lambda s, r, k: (
        jnp.where(r.active, jnp.exp(r.loss), 0) / jnp.where(r.active, jnp.exp(r.loss), 0).sum(),
        s,
    ),
    "gives one coefficient a slot": lambda s, r, k: (even(r)[:-1], s),
    r"keeps the form of its state: structure, shapes and dtypes, but \(\) became float32\[5\]": lambda s, r, k: (
        even(r),
        r.loss,
    ),
    "gives finite coefficients with everybody": lambda s, r, k: (even(r) / 0, s),
    "gives finite coefficients with an absent client": lambda s, r, k: (even(r) / r.active, s),
    "gives inactive clients a coefficient of 0": lambda s, r, k: ((1 + r.loss) / (1 + r.loss).sum(), s),
    "does not mind the order of the slots": lambda s, r, k: (even(r) * jnp.arange(5.0), s),
    "does not look at inactive slots, but it does at their loss$": lambda s, r, k: (even(r) * r.loss.mean(), s),
    "does not look at inactive slots, but it does at their n$": lambda s, r, k: (
        jnp.where(r.active, r.n, 0) / r.n.sum(),  # steps that are shorter the more clients are absent
        s,
    ),
    "gives finite coefficients with one client alone": lambda s, r, k: (
        jnp.where(r.active, 1 / (r.active.sum() - 1), 0),  # as a sample variance divides
        s,
    ),
    "is the same under jit": lambda s, r, k: (even(r) * (2.0 if isinstance(r.loss, jax.core.Tracer) else 1.0), s),
}


def test_a_rule_that_branches_in_python_is_told_so():
    """In every eager call it works."""
    branching = rule(lambda s, r, k: (even(r) * (2 if r.n[0] > 0 else 1), s))
    with pytest.raises(
        ValueError,
        match=r"rule must be one that is the same under jit, got TracerBoolConversionError.*use jnp.where$",
    ):
        ff.check_rule(branching)


def test_a_number_that_becomes_another_kind_is_told_which():
    """The engine refuses it too: tests/engine/test_engine_errors.py."""
    adding = rule(lambda s, r, k: (even(r), s + r.loss.mean()), init=lambda sizes, key: 0)
    with pytest.raises(ValueError, match=r"shapes and dtypes, but int32\[\] became float32\[\]"):
        ff.check_rule(adding)


def test_a_state_of_fewer_bits_than_the_signals_is_told_where_float64_is_on():
    """A federation's signals are float64 there."""
    start = lambda sizes, key: jnp.zeros((), jnp.float32)  # noqa: E731
    narrow = rule(lambda s, r, k: (even(r), s + jnp.where(r.active, r.loss, 0).sum()), init=start)
    assert ff.check_rule(narrow).startswith("keeps its promises")
    with jax.enable_x64(True), pytest.raises(ValueError, match=r"dtypes, but float32\[\] became float64\[\]"):
        ff.check_rule(narrow)


def test_functions_that_take_other_arguments_are_told_which():
    with pytest.raises(ValueError, match=r"^init must take \(sizes, key\), got \(sizes\)$"):
        ff.check_rule(rule(lambda s, r, k: (even(r), s), init=lambda sizes: ()))
    with pytest.raises(ValueError, match=r"^weigh must take \(state, report, key\), got \(s, r\)$"):
        ff.check_rule(rule(lambda s, r: (even(r), s)))


def averaging(report, state):
    """Half the state and half the mean loss, 0 / 0 where nobody is there."""
    return 0.5 * state + 0.5 * jnp.where(report.active, report.loss, 0).sum() / report.active.sum()


def test_a_state_must_not_become_nan_also_where_nobody_is_there():
    """One empty round would end all later ones: every coefficient is NaN then, and the model stands still."""
    start = lambda sizes, key: jnp.zeros(())  # noqa: E731
    with pytest.raises(ValueError, match="must be one that keeps its state free of NaN with nobody there"):
        ff.check_rule(rule(lambda s, r, k: (even(r), averaging(r, s)), start))
    with pytest.raises(ValueError, match="must be one that keeps its state free of NaN with everybody"):
        ff.check_rule(rule(lambda s, r, k: (even(r), s + jnp.nan), start))
    kept = rule(lambda s, r, k: (even(r), jnp.where(r.active.any(), averaging(r, s), s)), start)
    assert "keeps its promises" in ff.check_rule(kept)
    unknown = rule(lambda s, r, k: (even(r), s), lambda sizes, key: jnp.full(sizes.shape, jnp.nan))
    assert "keeps its promises" in ff.check_rule(unknown)  # a mark of the rule's own


@pytest.mark.parametrize(
    ("second", "promise"),
    [
        (lambda s, c, r, k, losses: (c * jnp.nan, s), "gives finite coefficients with everybody"),
        (lambda s, c, r, k, losses: (c[:2], s), r"gives one coefficient a slot, \[5\], got \(2,\)"),
        (lambda s, c, r, k, losses: (c * jnp.arange(5.0), s), "does not mind the order of the slots"),
    ],
)
def test_a_second_look_is_part_of_the_rule(second, promise):
    with pytest.raises(ValueError, match=f"rule must be one that {promise}"):
        ff.check_rule(ff.Method(ff.fedavg("uniform"), revise=second))
    with pytest.raises(ValueError, match=r"runs as revise\(state, coef, report, key, losses\), got TypeError"):
        ff.check_rule(ff.Method(ff.fedavg("uniform"), revise=lambda s, c, r, k: (c, s)))
    short = ff.Aggregator(lambda sizes, key: (), lambda s, r, k: (even(r)[:2], s))
    with pytest.raises(ValueError, match="gives one coefficient a slot"):
        ff.check_rule(ff.Method(short, revise=lambda s, c, r, k, losses: (even(r), s)))
    halved = ff.Method(ff.fedavg("uniform"), revise=lambda s, c, r, k, losses: (c / 2, s))
    assert "sum to 0.5" in ff.check_rule(halved)


def test_coefficients_that_cancel_are_no_length_of_a_step():
    def weigh(state, report, key):
        mean = jnp.where(report.active, report.loss, 0).sum() / report.active.sum()
        return jnp.where(report.active, report.loss - mean, 0), state

    assert "; coefficients cancel: they sum to 0" in ff.check_rule(rule(weigh))


def test_what_the_coefficients_sum_to_is_said_and_what_it_makes_of_the_step():
    twice = ff.check_rule(rule(lambda s, r, k: (2 * even(r), s)))
    assert twice.endswith("; coefficients sum to 2, so the server steps 2 times as far as FedAvg")


@pytest.mark.parametrize("promise", BROKEN)
@pytest.mark.filterwarnings("ignore:.*Tracer")
def test_a_broken_promise_is_named(promise):
    with pytest.raises(ValueError, match=f"rule must be one that {promise}"):
        ff.check_rule(rule(BROKEN[promise]))


def test_sizes_may_be_masked_by_a_product():
    """They are always finite, unlike a loss."""

    def weigh(state, report, key):
        mine = report.n * report.active
        return mine / mine.sum(), state

    assert "sum to 1" in ff.check_rule(rule(weigh))


def test_the_cohort_must_leave_room_to_shuffle():
    with pytest.raises(ValueError, match="cohort must be from 3 to the 8 clients, got 2"):
        ff.check_rule(ff.fedavg(), cohort=2)
    assert "reads loss" in ff.check_rule(ff.aaggff_s(), cohort=8)


def test_a_rule_that_sorts_losses_is_told_what_decides_between_equal_ones():
    def weigh(state, report, key):
        rank = jnp.argsort(jnp.argsort(jnp.where(report.active, report.loss, -jnp.inf))) + 1.0
        weights = jnp.where(report.active, rank, 0)
        return weights / weights.sum(), state

    line = ff.check_rule(ff.Aggregator(lambda sizes, key: (), weigh))
    assert line.endswith("; of equal losses the order of the slots decides")
