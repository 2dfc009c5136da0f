"""Rows 15 and 21: losses below 0 where a rule takes them for positive, and updates that are never used."""

import warnings

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from toy import federation, simulation

import fedjax_fair as ff
from fedjax_fair.engine.watch import never_used

N = len(toy.SIZES)
BELOW = "clients have losses below 0, down to -.*add a constant to loss="
NEVER = "there and never used: "
THREE = ff.local_sgd(optax.sgd(0.1), steps=3, batch_size=3)


def below(outputs, y):
    """A density's loss: it may be below 0, as a Gaussian's is."""
    return ff.losses.softmax_cross_entropy(outputs, y) - 50


def said(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught]


# Losses below 0


def relative(state, report, key):
    return report.loss / report.loss.sum(), state


relative.positive_losses = True
NEED = {
    "qfedavg": ff.qfedavg(1.0, lipschitz=10.0),
    "qfedsgd": ff.qfedsgd(1.0, lipschitz=10.0),
    "loss_proportional": ff.loss_proportional(),
    "reweighted": ff.reweighted(),
    "reweighted by a root": ff.reweighted(jnp.sqrt),
    "reweighted by a power": ff.reweighted(lambda F: F**1.5, "size"),
    "aaggff_s": ff.aaggff_s(),
    "aaggff_d": ff.aaggff_d("normal"),
    "clipped losses": ff.defences.clip_losses(ff.fedmaba()),
    "one's own": ff.Aggregator(lambda sizes, key: (), relative),
}
DO_NOT = {
    "fedavg": ff.fedavg(),
    "afl": ff.afl(),
    "term": ff.term(),
    "fedmaba": ff.fedmaba(),
    "fedeba": ff.fedeba(),
    "loss_softmax": ff.loss_softmax(),
    "fedfv": ff.fedfv(),
    "propfair": ff.propfair(),
    "fedmgda_plus": ff.fedmgda_plus(),
    "reweighted by an exponential": ff.reweighted(lambda F: jnp.exp(0.1 * F)),
    "reweighted by a line": ff.reweighted(lambda F: 2 * F),
    "clipped losses that nobody reads": ff.defences.clip_losses(ff.fedavg()),
}


@pytest.mark.parametrize("name", NEED)
def test_row_15_a_rule_that_needs_positive_losses_says_so_once(data, name):
    sim = simulation(data, NEED[name], trainer=THREE, loss=below)
    assert sim.positive_losses
    with pytest.warns(UserWarning, match=BELOW) as caught:
        ff.run(sim, 0, 4, eval_every=1)
    assert len(caught) == 1


@pytest.mark.parametrize("name", DO_NOT)
def test_a_rule_that_reads_differences_does_not(data, name):
    assert said(lambda: ff.run(simulation(data, DO_NOT[name], trainer=THREE, loss=below), 0, 2)) == []


@pytest.mark.parametrize("name", NEED)
def test_nor_does_any_of_losses_above_0(data, name):
    assert said(lambda: ff.run(simulation(data, NEED[name], trainer=THREE), 0, 2)) == []


def test_a_sweep_says_it_too(data):
    with pytest.warns(UserWarning, match=BELOW) as caught:
        ff.sweep(lambda q: simulation(data, ff.qfedavg(q, lipschitz=10.0), loss=below), {"q": [1.0, 2.0]}, rounds=2)
    assert len(caught) == 1


def test_a_constant_that_lifts_the_losses_is_enough(data):
    sim = simulation(data, NEED["qfedavg"], loss=lambda o, y: below(o, y) + 50)
    assert said(lambda: ff.run(sim, 0, 2)) == []


def test_a_swept_phi_is_left_alone(data):
    swept = ff.sweep(
        lambda t: simulation(data, ff.reweighted(lambda F: jnp.exp(t * F))), {"t": [0.1, 1.0]}, rounds=2
    )
    assert len(swept.points) == 2


@pytest.mark.parametrize("phi", [lambda F: -F, lambda F: 1 / F, lambda F: 0 * F, lambda F: -jnp.log(F)])
def test_row_21_a_phi_that_does_not_increase_is_warned_of(data, phi):
    for rule in (ff.reweighted(phi), ff.defences.clip_losses(ff.reweighted(phi))):
        with pytest.warns(UserWarning, match=r"phi must increase with the loss, such as lambda F: F\*\*2: got one"):
            simulation(data, rule)


@pytest.mark.parametrize("phi", [lambda F: float(F), lambda F: jnp.ones(2) * F, lambda F, G: F])
def test_a_phi_that_is_no_function_of_one_loss_is_refused(phi):
    with pytest.raises(
        ValueError, match="phi must be a differentiable function of one loss, a traced scalar, got "
    ):
        ff.reweighted(phi)


@pytest.mark.parametrize("phi", [jnp.square, lambda F: -jnp.log(0.5 - F), lambda F: (F - 2.0) ** 2, jnp.expm1])
def test_one_that_increases_somewhere_is_taken(phi):
    assert not ff.reweighted(phi).weigh.remark


# Updates that are never used

NOTHING = ff.Aggregator(lambda sizes, key: (), lambda state, report, key: (0 * report.n, state))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"aggregator": NOTHING}, "no update was used in 3 rounds.*the rule gave every client a coefficient of 0"),
        (
            {"trainer": THREE._replace(limit=lambda key, r, i: jnp.zeros((), jnp.int32))},
            r"no update moved the model in 3 rounds.*the clients made no local step \(limit=\)",
        ),
        ({"trainer": ff.local_sgd(optax.sgd(0.0), batch_size=3)}, "no update moved the model in 3 rounds"),
        ({"server_optimizer": optax.sgd(0.0)}, "no update moved the model in 3 rounds"),
        (
            {"available": ff.availability.trace(np.zeros((1, N)))},
            "no update was used in 3 rounds.*all clients were absent",
        ),
    ],
)
def test_row_21_a_run_that_leaves_the_model_as_it_was_says_why(data, settings, sentence):
    with pytest.warns(UserWarning, match=sentence) as caught:
        ff.run(simulation(data, **settings), 0, 3)
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"aggregator": NOTHING}, "no update was used in 3 rounds.*the rule gave every client a coefficient of 0"),
        ({"server_optimizer": optax.sgd(0.0)}, "no update moved the model in 3 rounds"),
    ],
)
def test_so_does_a_sweep(data, settings, sentence):
    with pytest.warns(UserWarning, match=sentence) as caught:
        ff.sweep(lambda: simulation(data, **settings), {}, rounds=3)
    assert len(caught) == 1


def test_rounds_in_which_a_rule_overflows_are_counted(data):
    """One exponential is infinite: the client is left out, and all others get a number divided by infinity."""

    def weigh(state, report, key):
        weights = jnp.exp(jnp.where((report.ids == 0) & (state > 1), 1000.0, report.loss))
        return weights / weights.sum(), state + 1

    rule = ff.Aggregator(lambda sizes, key: 0, weigh)
    with pytest.warns(UserWarning, match="in 4 of 6 rounds the rule gave every client a coefficient of 0: unless"):
        ff.run(simulation(data, rule), 0, 6)


def test_one_that_goes_on_from_a_state_says_so(data):
    state, _ = ff.run(simulation(data), 0, 2)
    with pytest.warns(UserWarning, match="no update moved the model in 2 rounds"):
        ff.run(simulation(data, trainer=ff.local_sgd(optax.sgd(0.0), batch_size=3)), rounds=2, state=state)


def with_nan(client):
    """One example of this client is not a number."""
    data = federation()
    row = np.asarray(data.train.rows)[np.asarray(data.train.owner) == client][0]
    return data._replace(x=jnp.asarray(data.x).at[row].set(jnp.nan))


RULES = {
    "fedavg": ff.fedavg(),
    "afl": ff.afl(),
    "qfedavg": ff.qfedavg(1.0, lipschitz=10.0),
    "term": ff.term(),
}


@pytest.mark.parametrize("name", RULES)
def test_row_21_a_client_whose_loss_is_not_a_number_is_named(name):
    with pytest.warns(UserWarning, match=rf"1 client was {NEVER}2 \(5 times\).*look for NaN in the data") as caught:
        ff.run(simulation(with_nan(2), RULES[name]), 0, 5)
    assert len(caught) == 1


def test_in_a_sweep_it_is_named_too():
    with pytest.warns(UserWarning, match=rf"1 client was {NEVER}2 \(5 times\)"):
        ff.sweep(lambda: simulation(with_nan(2), RULES["afl"]), {}, rounds=5)


def test_in_a_short_run_all_its_rounds_are_enough():
    with pytest.warns(UserWarning, match=rf"{NEVER}1 \(1 times\)"):
        ff.run(simulation(with_nan(1), ff.afl()), 0, 1)


def test_of_sampled_clients_too():
    sim = simulation(with_nan(3), ff.term(), selector=ff.uniform(2))
    with pytest.warns(UserWarning, match=rf"1 client was {NEVER}3 \("):
        ff.run(sim, 0, 30)


def test_also_where_others_are_absent():
    sim = simulation(with_nan(3), ff.term(), available=ff.availability.bernoulli(0.8))
    with pytest.warns(UserWarning, match=rf"1 client was {NEVER}3 \("):
        ff.run(sim, 0, 40)


def test_a_client_whose_coefficients_are_not_finite_is_named(data):
    def weigh(state, report, key):
        return jnp.where(report.ids == 4, jnp.nan, 0.2), state

    with pytest.warns(UserWarning, match=rf"{NEVER}4 \(3 times\)"):
        ff.run(simulation(data, ff.Aggregator(lambda sizes, key: (), weigh)), 0, 3)


@pytest.mark.parametrize(
    "settings",
    [
        {"available": ff.availability.trace(np.arange(N)[None] != 2)},
        {"available": ff.availability.bernoulli(0.3)},
        {"faults": [ff.faults.not_finite(np.arange(N) == 2)]},
        {"aggregator": ff.afl(lr=100.0)},
        {"selector": ff.pow_d(2)},
        {"aggregator": ff.term(t=100.0)},
    ],
    ids=[
        "absent for ever",
        "often absent",
        "declared faulty",
        "AFL's zeros",
        "never selected",
        "tiny coefficients",
    ],
)
def test_what_is_meant_is_not_warned_of(data, settings):
    assert said(lambda: ff.run(simulation(data, **settings), 0, 12)) == []


def test_who_was_there_is_told_from_downloads():
    def history(active, downloads, evaluations=0):
        active = np.array(active, bool)
        ids = np.tile(np.arange(active.shape[1]), (len(active), 1))
        rest = (None, np.array(downloads), np.full(len(active), evaluations))
        return ff.History(np.arange(1), {}, ids, active * 1.0, active, *rest)

    assert never_used(history([[1, 0, 0]] * 3, [3] * 3)) == [(1, 3), (2, 3)]
    assert never_used(history([[1, 0, 0]] * 3, [2] * 3)) == []  # one of the two was absent: which?
    assert never_used(history([[1, 0, 0]] * 3, [1] * 3)) == []  # both were
    assert never_used(history([[1, 0, 1]] * 2 + [[1, 1, 1]], [3] * 3)) == []  # it was used once
    assert never_used(history([[1, 0, 1]] * 2 + [[1, 0, 1]], [3, 3, 2])) == []  # there in two rounds of three
    assert never_used(history([[1, 0, 1]] * 3, [3] * 3, evaluations=5)) == []  # others were asked as well
