"""Row 9: what the command line derives from the learning rate follows it where it varies."""

import dataclasses

import numpy as np
import optax
import pytest

import fedjax_fair as ff
from fedjax_fair import registry
from fedjax_fair.cli.arguments import read_command
from fedjax_fair.cli.comparing import with_flag_names
from fedjax_fair.cli.plan import decay_of, prepare, prepare_sweep, rate_of, trainer_of
from fedjax_fair.results.comparison import Comparison

SMALL = ["--clients", "5", "--cohort", "5", "--synthetic.max-size", "60", "--steps", "3"]
ROUNDS, LR, DECAY = 6, 0.1, 0.5


def plan_of(rule, *flags):
    experiment, rules = read_command(["run", "--aggregator", rule, *SMALL, *flags])
    return prepare(experiment, rules)


def coefficients(sim):
    return ff.run(sim, 0, ROUNDS, eval_every=ROUNDS)[1].coef


def in_python(plan, rule, lr, decay):
    """The same experiment by hand, whose constant follows the rate."""
    trainer = ff.local_sgd(optax.sgd(lr), steps=3, batch_size=50, schedule=lambda r: decay**r)
    return ff.simulation(plan.ground.model, plan.ground.data, aggregator=rule, trainer=trainer)


@pytest.mark.parametrize("name", ["qfedavg", "qfedsgd"])
def test_the_lipschitz_constant_follows_a_rate_that_decays(name):
    plan = plan_of(f"{name}:q=1", "--lr", str(LR), "--lr-decay", str(DECAY))
    right = getattr(ff, name)(1.0, lipschitz=lambda r: 1 / (LR * DECAY**r))
    wrong = getattr(ff, name)(1.0, lipschitz=1 / LR)
    got = coefficients(plan.simulations[f"{name}:q=1"])
    np.testing.assert_allclose(got, coefficients(in_python(plan, right, LR, DECAY)), rtol=1e-5)
    assert np.abs(got - coefficients(in_python(plan, wrong, LR, DECAY)))[-1].max() > 1e-3


def test_of_a_constant_rate_it_is_the_number_that_it_was():
    plain = plan_of("qfedavg:q=1", "--lr", str(LR))
    experiment = plain.ground.experiment
    assert rate_of(experiment) == LR
    assert decay_of(experiment) is None
    assert trainer_of(experiment).schedule is None
    again = in_python(plain, ff.qfedavg(1.0, lipschitz=1 / LR), LR, 1.0)._replace(data=plain.ground.data)
    np.testing.assert_array_equal(coefficients(plain.simulations["qfedavg:q=1"]), coefficients(again))


def test_one_that_is_given_stays():
    plan = plan_of("qfedavg:q=1,lipschitz=7.", "--lr-decay", str(DECAY))
    right = ff.qfedavg(1.0, lipschitz=7.0)
    got = coefficients(plan.simulations["qfedavg:q=1,lipschitz=7."])
    np.testing.assert_allclose(got, coefficients(in_python(plan, right, LR, DECAY)), rtol=1e-5)


@pytest.fixture(scope="module")
def by_hand():
    """Coefficients by learning rate, its decay and q, of a sweep in Python."""
    plan = plan_of("qfedavg")

    def simulate(lr, decay, q):
        return in_python(plan, ff.qfedavg(q, lipschitz=lambda r: 1 / (lr * decay**r)), lr, decay)

    grid = {"lr": [0.05, 0.1, 0.2], "decay": [0.5, 0.8, 1.0], "q": [1.0, 2.0]}
    swept = ff.sweep(simulate, grid, rounds=ROUNDS, eval_every=ROUNDS)
    return {tuple(point.values()): history.coef for point, (history,) in zip(swept.points, swept.histories)}


@pytest.mark.parametrize(
    "grid", [("lr=.05,.2",), ("lr_decay=.5,1.",), ("lr=.05,.2", "lr_decay=.5,1."), ("q=1.,2.",)]
)
def test_in_a_sweep_it_follows_the_rate_of_every_point(grid, by_hand):
    experiment, _ = read_command(["sweep", "--grid", *grid, *SMALL, "--lr-decay", "0.8"])
    plan = prepare_sweep(experiment, "qfedavg", grid)
    swept = ff.sweep(plan.build, plan.points, rounds=ROUNDS, eval_every=ROUNDS)
    for point, (history,) in zip(swept.points, swept.histories):
        right = by_hand[point.get("lr", LR), point.get("lr_decay", 0.8), point.get("q", 1.0)]
        np.testing.assert_allclose(history.coef, right, rtol=1e-4)


def test_a_rule_of_ones_own_is_handed_it_too(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import fedjax_fair as ff\n\n"
        "def mine(q=1.0, *, lipschitz):\n    return ff.qfedavg(q, lipschitz=lipschitz)\n"
    )
    name = f"{file}:mine"
    made = registry.make_rule(name, {}, learning_rate=lambda r: LR * DECAY**r)
    stock = ff.qfedavg(1.0, lipschitz=lambda r: 1 / (LR * DECAY**r))
    plan = plan_of("fedavg")
    np.testing.assert_array_equal(*(coefficients(in_python(plan, rule, LR, DECAY)) for rule in (made, stock)))


@pytest.mark.parametrize("decay", ["0", "-1", "nan"])
def test_a_decay_that_is_no_factor_is_refused_before_a_constant_is_made_of_it(decay):
    experiment, rules = read_command(["run", "--aggregator", "qfedavg", *SMALL])
    with pytest.raises(ValueError, match="lr_decay must be above 0"):
        prepare(dataclasses.replace(experiment, lr_decay=float(decay)), rules)


def test_a_rules_own_rate_is_called_as_its_flag_is_where_it_was_tuned():
    tuned = {
        "settings": {"afl:x=1": {"afl_lr": 0.1, "lr": 0.5}, "fedavg": {"lr": 0.1}},
        "grids": {"afl:x=1": {"afl_lr": [0.1], "lr": [0.5]}},
        "tried": {"afl:x=1": {"afl_lr=0.1,my_afl_lr=0.5": "measures"}},
        "tried_runs": {"afl:x=1": {"afl_lr=0.1,lr=0.5": "runs"}},
    }
    found = with_flag_names(Comparison(**dict.fromkeys(Comparison._fields) | tuned))
    assert found.settings == {"afl:x=1": {"afl.lr": 0.1, "lr": 0.5}, "fedavg": {"lr": 0.1}}
    assert found.grids == {"afl:x=1": {"afl.lr": [0.1], "lr": [0.5]}}
    assert found.tried == {"afl:x=1": {"afl.lr=0.1,my_afl_lr=0.5": "measures"}}
    assert found.tried_runs == {"afl:x=1": {"afl.lr=0.1,lr=0.5": "runs"}}
