"""A comparison: every rule's result is its own run's, differences are paired, settings are chosen on validation."""

import pickle
import re
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from numpy.testing import assert_allclose, assert_array_equal

import fedjax_fair as ff
from fedjax_fair import registry
from fedjax_fair.data.alike import with_union
from fedjax_fair.engine import program_run
from fedjax_fair.engine.joining import group, runs_of
from fedjax_fair.metrics.significance import holm, paired
from fedjax_fair.results.compare import _choose
from fedjax_fair.results.comparison import measured
from fedjax_fair.results.latex import latex
from fedjax_fair.results.references import Reference, reference
from fedjax_fair.robustness.loss_clipping import clip_losses


def federation(seed):
    return toy.federation(seed=seed)


def build(rule, data, lr=0.1):
    return ff.simulation(
        toy.linear,
        data,
        aggregator=rule,
        selector=ff.uniform(3),
        trainer=ff.local_sgd(optax.sgd(lr), epochs=1, batch_size=2),
        evaluate=("test", "validation"),
    )


def q_fedavg(q):
    return ff.qfedavg(q=q, lipschitz=10.0)


def leaning(rule, data, lr=0.1):
    """Judged by a metric that may be negative."""
    metric = ff.Metric(lambda outputs, y: outputs[:, 0], range=(-9, 9), name="lean")
    return ff.simulation(**(build(rule, data, lr).arguments | {"metric": metric}))


SHORT = {"federation": federation, "rounds": 4, "eval_every": 1, "last": 2}
RULES = {"fedavg": ff.fedavg(), "no-op": ff.fedprox(mu=0.0), "fedmaba": ff.fedmaba()}


@pytest.fixture(scope="module")
def found():
    return ff.compare(RULES, build, replicates=3, **SHORT)


@pytest.fixture(scope="module")
def tuned():
    tune = {"fedavg": {"lr": [0.01, 0.2, 1.0]}, "qfedavg": {"q": [1.0, 0.1, 5.0]}}
    return ff.compare({"fedavg": ff.fedavg(), "qfedavg": q_fedavg}, build, replicates=2, tune=tune, **SHORT)


@pytest.mark.parametrize("rule", RULES)
def test_every_result_is_that_of_the_rules_own_run(found, rule):
    sim = build(RULES[rule], federation(0))
    for replicate, history in enumerate(found.runs[rule]):
        _, alone = ff.run(sim._replace(data=federation(replicate)), replicate, 4, eval_every=1)
        assert_allclose(history.scores["test"].accuracy, alone.scores["test"].accuracy, atol=1e-6)
        assert_array_equal(history.ids, alone.ids)
        assert_allclose(history.coef, alone.coef, atol=1e-5)


def test_clients_of_one_size_in_each_replicate_but_not_in_all_train_on_their_own_examples():
    """A program for clients of the larger size would give those of the smaller their neighbours' examples."""

    def drawn(seed):
        return toy.federation((4 + 2 * seed,) * 3, seed=seed)

    def everybody(rule, data):
        trainer = ff.local_sgd(optax.sgd(0.5), epochs=1, batch_size=2)
        return ff.simulation(toy.linear, data, aggregator=rule, trainer=trainer)

    settings = {"replicates": 2, "rounds": 2, "eval_every": 2, "references": False}
    found = ff.compare({"fedavg": ff.fedavg()}, everybody, federation=drawn, **settings)
    for seed, history in enumerate(found.runs["fedavg"]):
        _, alone = ff.run(everybody(ff.fedavg(), drawn(seed)), seed, 2, eval_every=2)
        assert_allclose(history.loss, alone.loss, rtol=1e-5)


def test_rules_that_share_a_program_end_where_each_ends_alone():
    """On clients whose sizes differ from seed to seed, up to XLA's rounding."""
    datas = [toy.federation(seed=0), toy.federation((4, 5, 4, 6, 7), seed=1)]

    def everybody(rule, data):
        trainer = ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=2)
        return ff.simulation(toy.linear, data, aggregator=rule, trainer=trainer)

    rules = {name: registry.make_rule(name, {}, learning_rate=0.1) for name in registry.AGGREGATORS}
    joined = [program for program in programs(rules, everybody, datas[1], False) if len(program) > 1]
    shared = {name: rules[name] for program in joined for name in program}
    assert len(shared) > 15
    few = {name: rules[name] for program in joined for name in program[:4]}
    assert len(programs(few, everybody, datas[1], True)) < len(joined)
    settings = {"rounds": 3, "eval_every": 3, "replicates": 2, "references": False, "federation": datas.__getitem__}
    with toy.optimized(False):
        got = ff.compare(shared, everybody, side_by_side=1, **settings)
        vmapped = ff.compare(few, everybody, **settings)
        for i, (name, rule) in enumerate(shared.items()):
            seed = i % 2
            _, alone = ff.run(everybody(rule, datas[seed]), seed, 3, eval_every=3)
            assert_allclose(got.runs[name][seed].coef, alone.coef, rtol=1e-5, atol=1e-6, err_msg=name)
            assert_allclose(got.runs[name][seed].loss, alone.loss, rtol=1e-5, err_msg=name)
            if name in few:
                assert_allclose(vmapped.runs[name][seed].coef, alone.coef, atol=1e-5, err_msg=name)
                assert_allclose(vmapped.runs[name][seed].loss, alone.loss, rtol=1e-5, err_msg=name)


def test_rules_of_one_program_read_no_more_than_alone():
    """Clipped losses look at those of local training, too, which AFL does not need."""
    rules = {"afl": clip_losses(ff.afl()), "fedmaba": clip_losses(ff.fedmaba())}
    data = federation(0)
    runs = runs_of(rules, {name: [{}] for name in rules}, {name: set() for name in rules}, set())
    [found] = group(runs, build, data, {}, True)
    assert found.sim.reads == build(rules["afl"], data).reads == ("loss",)
    assert found.sim.reads == ff.reads(found.sim.arguments["aggregator"], n_clients=data.n_clients)


@pytest.mark.filterwarnings("ignore:1 client was there and never used")  # of AFL, which is the point
def test_a_loss_that_is_not_finite_costs_a_client_its_place_with_rules_that_read_it_alone():
    """Updates are added up as they come here: nobody reads them."""

    def loss(outputs, y):  # NaN of class 0, with a gradient of a number
        plain = ff.losses.softmax_cross_entropy(outputs, y)
        return jnp.where(y == 0, jax.lax.stop_gradient(jnp.nan * plain) + plain, plain)

    def some(rule, data):
        trainer = ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=2)
        return ff.simulation(toy.linear, data, aggregator=rule, trainer=trainer, loss=loss)

    x, client = np.random.default_rng(0).normal(size=(40, toy.DIM)).astype(np.float32), np.arange(40) % 4
    y = np.where(client == 1, 0, 1 + np.arange(40) // 4 % 2)
    data = ff.FederatedData.from_arrays(x, y, client_id=client, split=(0.8, 0.0, 0.2))
    rules = {"fedavg": ff.fedavg(), "afl": ff.afl()}
    assert programs(rules, some, data, True) == [["fedavg", "afl"]]
    settings = {"replicates": 1, "federation": lambda seed: data, "rounds": 2, "eval_every": 2, "references": False}
    found = ff.compare(rules, some, **settings)
    for name, rule in rules.items():
        [history], (_, alone) = found.runs[name], ff.run(some(rule, data), 0, 2, eval_every=2)
        assert_array_equal(history.active, alone.active)
        assert_array_equal(history.active[:, 1], name == "fedavg")
        assert_allclose(history.coef, alone.coef, rtol=1e-5, atol=1e-6)


def test_more_points_of_a_grid_make_no_more_simulations():
    """FedAvg, q-FedAvg and AFL have programs of their own where runs go one after another."""

    def made(points):
        calls = []

        def counted(rule, data, lr):
            calls.append(rule)
            return build(rule, data, lr)

        rules = {"fedavg": ff.fedavg, "qfedavg": lambda: ff.qfedavg(lipschitz=10.0), "afl": ff.afl}
        grid = [{"lr": 0.1 + 0.01 * i} for i in range(points)]
        runs = runs_of(rules, dict.fromkeys(rules, grid), {name: set() for name in rules}, {"lr"})
        assert len(group(runs, counted, federation(0), {}, False)) == 3
        return len(calls)

    assert made(2) == made(9)


def programs(rules, build, data, side_by_side):
    """The rules by program."""
    runs = runs_of(rules, {name: [{}] for name in rules}, {name: set() for name in rules}, set())
    return [[runs[i].variant.rule for i in found.runs] for found in group(runs, build, data, {}, side_by_side)]


@pytest.mark.parametrize(
    ("dim", "cohort", "side_by_side", "expected"),
    [
        (3, 3, True, [["fedavg", "fedmgda_plus", "afl", "qfedavg"]]),
        (3, 3, False, [["fedavg"], ["fedmgda_plus"], ["afl"], ["qfedavg"]]),
        (2**11, 3, True, [["fedavg"], ["fedmgda_plus"], ["afl"], ["qfedavg"]]),
        (3, 33, True, [["fedavg"], ["fedmgda_plus"], ["afl"], ["qfedavg"]]),
    ],
    ids=["tiny", "one after another", "larger model", "many clients"],
)
def test_rules_that_read_more_or_less_share_a_program_where_clients_are_few_and_the_model_tiny(
    dim, cohort, side_by_side, expected
):
    def some(rule, data):
        return ff.simulation(**(build(rule, data).arguments | {"selector": ff.uniform(cohort)}))

    rules = {"fedavg": ff.fedavg(), "fedmgda_plus": ff.fedmgda_plus(), "afl": ff.afl(), "qfedavg": q_fedavg(1.0)}
    data = toy.federation((4,) * 33, dim=dim)
    assert programs(rules, some, data, side_by_side) == expected
    many = rules | {f"fedavg {i}": ff.fedavg() for i in range(13)}
    assert [program for program in programs(many, some, data, side_by_side) if "afl" in program] == [["afl"]]


@pytest.mark.parametrize(
    ("trainer", "expected"),
    [
        ({"epochs": 1, "batch_size": 2}, [["fedavg", "afl"]]),
        ({"steps": 1, "batch_size": None}, [["fedavg", "afl"]]),
        ({"steps": 2, "batch_size": 2}, [["fedavg", "afl"]]),
        ({"steps": 1, "batch_size": 2}, [["fedavg"], ["afl"]]),
        ({"epochs": 1, "batch_size": 2, "limit": lambda key, r, i: 1}, [["fedavg"], ["afl"]]),
        (lambda *given: ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=2)(*given), [["fedavg"], ["afl"]]),
    ],
    ids=["an epoch", "a full batch", "steps", "one step", "stragglers", "a trainer of one's own"],
)
def test_a_rule_that_reads_no_losses_shares_their_program_where_they_cost_less_than_training(trainer, expected):
    train = trainer if callable(trainer) else ff.local_sgd(optax.sgd(0.1), **trainer)

    def some(rule, data):
        return ff.simulation(toy.linear, data, aggregator=rule, trainer=train)

    rules = {"fedavg": ff.fedavg(), "afl": ff.afl()}
    assert programs(rules, some, toy.federation((4,) * 3), True) == expected


def test_a_rule_in_a_shared_program_leaves_out_whom_it_leaves_out_alone():
    """Client 0 reports a loss of NaN, and the square of client 1's update is infinite: whoever reads it, minds."""
    who = np.eye(5, dtype=bool)
    faults = [
        ff.faults.Fault(who[0], lambda report, key: report._replace(loss=jnp.nan * report.loss)),
        ff.faults.scale_update(who[1], 1e21),
    ]

    def lying(rule, data):
        trainer = ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=2)
        slow = optax.sgd(1e-3)
        return ff.simulation(
            toy.linear, data, aggregator=rule, trainer=trainer, faults=faults, server_optimizer=slow
        )

    out = {"fedavg": [], "fedmgda_plus": [1], "afl": [0], "qfedavg": [0, 1]}
    made = {name: registry.make_rule(name, {}, learning_rate=0.1) for name in out}
    assert programs(made, lying, federation(0), True) == [[*out]]
    settings = {"replicates": 1, "federation": federation, "rounds": 1, "eval_every": 1, "references": False}
    found = ff.compare(made, lying, **settings)
    for name, left in out.items():
        [history] = found.runs[name]
        _, alone = ff.run(lying(made[name], federation(0)), 0, 1, eval_every=1)
        assert_array_equal(history.ids[~history.active], left)
        assert_array_equal(history.active, alone.active)
        assert_allclose(history.coef, alone.coef, rtol=1e-5, atol=1e-6)
        assert (history.received_loss is None) == (alone.received_loss is None)
        if alone.received_loss is not None:
            assert_allclose(history.received_loss, alone.received_loss, rtol=1e-5)


@pytest.mark.parametrize("batch", [2, None])
def test_clients_whose_sizes_change_places_train_on_their_own_examples(batch):
    def everybody(rule, data):
        trainer = ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=batch)
        return ff.simulation(toy.linear, data, aggregator=rule, trainer=trainer, evaluate=("test", "train"))

    datas = [toy.federation((4, 5, 5)), toy.federation((5, 4, 5), seed=1)]
    run = {"rounds": 2, "eval_every": 1, "replicates": 2, "split": "train", "references": batch == 2}
    got = ff.compare({"fedavg": ff.fedavg()}, everybody, federation=datas.__getitem__, **run)
    for seed, data in enumerate(datas):
        _, alone = ff.run(everybody(ff.fedavg(), data), seed, 2, eval_every=1)
        assert_allclose(got.runs["fedavg"][seed].scores["train"].loss, alone.scores["train"].loss, rtol=1e-5)
    if batch == 2:
        assert got.references["pooled"][0].scores["train"].accuracy.shape == (2, 3)  # nobody is judged by the union


def scaled(rule, share):
    def weigh(state, report, key):
        coef, after = rule.weigh(state, report, key)
        return share * coef, after

    return rule._replace(weigh=weigh)


def test_what_build_makes_of_one_rule_is_not_made_of_another():
    """Neither of a pair whose second part differs, nor of the rule that build alone wraps."""
    pairs = {"full": (ff.fedavg(), 1.0), "tenth": (ff.fedavg("uniform"), 0.1)}
    got = ff.compare(pairs, lambda pair, data: build(scaled(*pair), data), replicates=1, references=False, **SHORT)
    assert_allclose([of[0].coef[0].sum() for of in got.runs.values()], [1, 0.1], rtol=1e-5)

    rules = {"full": ff.fedavg(), "half": ff.fedavg("uniform")}

    def wrapping(rule, data):
        return build(scaled(rule, 0.5) if rule is rules["half"] else rule, data)

    got = ff.compare(rules, wrapping, replicates=1, references=False, **SHORT)
    assert_allclose([of[0].coef[0].sum() for of in got.runs.values()], [1, 0.5], rtol=1e-5)


def test_a_build_that_changes_the_examples_is_refused():
    def doubling(rule, data):
        return build(rule, data._replace(x=2 * data.x))

    with pytest.raises(ValueError, match="got a simulation of other examples: change them before"):
        ff.compare({"fedavg": ff.fedavg()}, doubling, replicates=1, **SHORT)


def test_a_rule_that_is_added_in_front_leaves_the_others_kept(tmp_path, capsys):
    rules = {"fedavg": ff.fedavg(), "propfair": ff.propfair()}
    run = {"replicates": 1, "references": False, "checkpoint": tmp_path, **SHORT}
    ff.compare(rules, build, **run)
    capsys.readouterr()
    ff.compare({"no-op": ff.fedprox(mu=0.0), **rules}, build, **run)
    assert "of 2 pieces the results are kept" in capsys.readouterr().err


def test_a_build_that_asks_for_its_rule_gives_each_what_it_asked_for():
    rules = {"a": ff.fedavg(), "b": ff.fedavg("uniform")}

    def asking(rule, data):
        return build(rule, data, lr=0.5 if rule in rules.values() else 0.1)

    got = ff.compare(rules, asking, replicates=2, references=False, **SHORT)
    _, alone = ff.run(build(rules["b"], federation(1), lr=0.5), 1, 4, eval_every=1)
    assert_allclose(got.runs["b"][1].loss, alone.loss, rtol=1e-5)


def test_each_reference_trains_on_what_it_says(found):
    """One client alone is FedAvg of that client; the pooled one makes as many steps as all together."""
    local, pooled = found.references["local"], found.references["pooled"]
    assert local[0].accuracy.shape == pooled[0].accuracy.shape == (2, 5)  # the last two evaluations
    assert not np.array_equal(local[0].loss, pooled[0].loss)
    data = federation(0)
    steps = -(-data.sizes // 2)
    assert pooled[0].rounds[-1] == max(1, round(4 * 3 * steps.mean() / -(-data.sizes.sum() // 2)))
    assert local[0].rounds[-1] == max(1, round(4 * 3 / 5))


def test_a_measure_is_the_mean_of_the_last_evaluations(found):
    for history, got in zip(found.runs["fedmaba"], found.measures()["fedmaba"]["gini"]):
        assert_allclose(got, np.mean([ff.metrics.gini(a) for a in history.accuracy[-2:]]), rtol=1e-6)


def test_differences_are_paired_by_replicate_and_adjusted_over_the_rules(found):
    values, differences = found.measures(), found.differences()
    assert list(differences) == ["no-op", "fedmaba"]
    pairs = [paired(values[rule]["accuracy"], values["fedavg"]["accuracy"]) for rule in differences]
    assert [of["accuracy"].difference for of in differences.values()] == pairs
    assert_allclose([of["accuracy"].holm for of in differences.values()], holm([pair.p for pair in pairs]))
    assert repr(differences).startswith(" minus fedavg ")  # the table below the comparison's
    assert repr(differences) in found.table()
    assert repr(pickle.loads(pickle.dumps(differences))) == repr(differences)


def test_where_a_part_of_it_is_wanted_it_is_told_which(found):
    """In a sentence, in which its table has no place."""
    with pytest.raises(ValueError, match=r"^runs must map .* per seed, got a Comparison: pass its runs$"):
        ff.table(found)
    with pytest.raises(ValueError, match=r"^differences must be .*, got a Comparison: pass its differences$"):
        ff.plot.paired_frontier(found, "fedavg")


def test_a_rule_that_was_not_applied_is_flagged(found):
    """FedProx with mu = 0 prints FedAvg's row."""
    assert "- identical, bit for bit: fedavg, no-op" in found.table().splitlines()


def test_so_it_is_where_its_program_rounds_otherwise():
    """FedAvg trains beside another rule, with products of other kernels."""

    def skewed(rule, data):
        trainer = ff.local_sgd(optax.sgd(0.1), steps=5, batch_size=20)
        model, selector = ff.models.logistic_regression(), ff.uniform(4)
        return ff.simulation(model, data, aggregator=rule, trainer=trainer, selector=selector)

    rules = {"fedavg": ff.fedavg(), "uniform": ff.fedavg("uniform"), "no-op": ff.fedprox(0.0)}
    settings = {"replicates": 2, "rounds": 20, "eval_every": 10, "references": False}
    got = ff.compare(rules, skewed, federation=ff.data.synthetic(10), **settings).table()
    assert re.search(r"^- identical(, bit for bit| but for rounding): fedavg, no-op$", got, re.MULTILINE)


def test_settings_are_chosen_on_validation_by_the_stated_criterion(tuned):
    for rule, points in tuned.tried.items():
        means = {point: of["accuracy"].mean() for point, of in points.items()}
        ((setting, value),) = tuned.settings[rule].items()
        assert means[f"{setting}={value:g}"] == max(means.values())
    _, alone = ff.run(build(q_fedavg(**tuned.settings["qfedavg"]), federation(1)), 1, 4, eval_every=1)
    assert_allclose(tuned.runs["qfedavg"][1].accuracy, alone.accuracy, atol=1e-6)
    assert "Tuning: 3 points for every rule." in tuned.table()


def test_other_criteria_choose_what_they_say():
    """Also where build's setting has the name of an argument inside."""

    def several(seed):
        rng, owner = np.random.default_rng(seed), np.arange(100) % 5
        x = rng.normal(size=(100, 4)).astype(np.float32)
        y = (x[:, 0] * (1 + owner) > owner - 2).astype(int)
        return ff.FederatedData.from_arrays(x, y, client_id=owner, seed=seed, split=(0.5, 0.3, 0.2))

    def named(rule, data, which=0.1):
        return build(rule, data, lr=which)

    rules, tune = (
        {"a": ff.fedavg(), "b": ff.fedavg("uniform")},
        {"a": {"which": [0.45]}, "b": {"which": [0.1, 0.3, 0.5]}},
    )
    settings = {**SHORT, "federation": several, "replicates": 2, "references": False}
    got = ff.compare(rules, named, tune=tune, choose="accuracy_if_worst10", **settings)
    assert set(got.settings["b"]) == {"which"}
    scores, chosen = got.tried["b"], f"which={got.settings['b']['which']:g}"
    accuracy = {point: of["accuracy"].mean() for point, of in scores.items()}
    floor = measured(got.runs["a"], "validation", 2)["worst10"].mean()
    fair = {point: accuracy[point] for point, of in scores.items() if of["worst10"].mean() >= floor}
    assert fair[chosen] == max(fair.values()) < max(accuracy.values())

    histories = {rule: [*got.tried_runs[rule].values()] for rule in rules}
    for choose, best in (("worst10", max), ("gini", min)):
        means = [of[choose].mean() for of in scores.values()]
        place = _choose(histories, {"b": [*scores.values()]}, "a", choose, ("validation", 2, None))["b"]
        assert means[place] == best(means) != means[0]
        assert [*accuracy.values()][place] < max(accuracy.values())


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [
        ([[0.5, 0.6], [0.9, np.nan], [0.7, 0.6]], 2),
        ([[np.nan] * 3, [0.9, np.nan, np.nan], [0.7, 0.6, np.nan], [0.7, 0.5, np.nan]], 2),
        ([[np.nan] * 2] * 3, 0),
    ],
    ids=["never one that failed", "but the one that failed least", "where all failed the first"],
)
def test_a_setting_of_which_runs_failed_is_chosen_only_where_there_is_no_other(scores, chosen, found):
    tried = {"a": [{"accuracy": np.array(of), "worst10": np.array(of)} for of in scores]}
    histories = {"a": [found.runs["fedavg"]]}
    for choose in ("accuracy", "worst10"):
        assert _choose(histories, tried, "a", choose, ("validation", 2, None)) == {"a": chosen}


def test_where_the_criterion_knows_no_setting_accuracy_decides(found):
    """A Gini coefficient of what may be negative is NaN, though no run failed."""
    tried = {"a": [{"accuracy": np.array([of]), "gini": np.array([np.nan])} for of in (0.1, 0.9, 0.5)]}
    assert _choose({"a": [found.runs["fedavg"]]}, tried, "a", "gini", ("validation", 2, None)) == {"a": 1}


def referenced(rule, **trainer):
    """The losses of a comparison's reference rows."""

    def everybody(rule, data):
        settings = {"batch_size": 2} | trainer
        return ff.simulation(toy.linear, data, aggregator=rule, trainer=ff.local_sgd(optax.sgd(0.1), **settings))

    settings = {"federation": federation, "replicates": 1, "rounds": 4, "eval_every": 4, "last": 1}
    rows = ff.compare({"rule": rule}, everybody, **settings).references
    return {name: histories[0].loss for name, histories in rows.items()}


def test_the_references_of_fedsgd_make_one_step_on_all_examples_a_round():
    """Also where SCAFFOLD has it weigh."""
    expected = referenced(ff.fedavg(), batch_size=None)
    for rule in (ff.fedsgd(), ff.scaffold(aggregator=ff.fedsgd())):
        found = referenced(rule)
        for row in ("local", "pooled"):
            assert_allclose(found[row], expected[row], rtol=1e-5)


def test_a_limit_on_steps_holds_for_clients_alone_and_not_for_all_their_examples():
    found, expected = referenced(ff.fedavg(), limit=lambda *_: jnp.int32(1)), referenced(ff.fedavg())
    assert_allclose(found["pooled"], expected["pooled"], rtol=1e-5)
    assert not np.allclose(found["local"], expected["local"], rtol=1e-2)


def test_who_trains_alone_is_judged_alone_and_who_has_all_examples_by_everybody():
    data = federation(0)
    sim = build(ff.fedavg(), data)
    union = with_union(data)
    whole, key, lengths = reference(sim, union), jax.random.key(0), np.array([2, 1], np.int32)
    everybodys = whole.train(key, data.n_clients, lengths, 3, union)["test"].loss
    own = whole.train(key, 3, lengths, 3, union)["test"].loss
    assert np.isfinite(everybodys).all()
    assert np.isfinite(own).tolist() == [[k == 3 for k in range(data.n_clients)]] * 2


def test_an_evaluation_of_ones_own_judges_who_trains_alone_by_all():
    def halved(rule, data):
        sim = build(rule, data)

        def evaluate(params, data):
            return jax.tree.map(lambda value: value / 2, sim.evaluate(params, data))

        return sim._replace(evaluate=evaluate)

    settings = SHORT | {"replicates": 1}
    whole, half = (ff.compare({"fedavg": ff.fedavg()}, by, **settings).references for by in (build, halved))
    for row in ("local", "pooled"):
        assert_allclose(half[row][0].loss, whole[row][0].loss / 2, rtol=1e-6)


def test_one_federation_for_all_is_said():
    got = ff.compare(
        {"fedavg": ff.fedavg()}, build, **{**SHORT, "federation": federation(0)}, replicates=2, references=False
    )
    assert "one federation" in got.table()
    assert len(got.examples) == 2
    assert not np.array_equal(got.runs["fedavg"][0].ids, got.runs["fedavg"][1].ids)


def test_a_data_frame_and_latex(found):
    frame = found.to_pandas()
    assert list(frame.columns) == ["rule", "replicate", "accuracy", "worst10", "variance", "gini", "better_off"]
    assert [*dict.fromkeys(frame["rule"])] == ["fedavg", "no-op", "fedmaba", "local", "pooled"]
    assert len(frame) == 15
    assert found.to_latex().count(r"\\") == 6
    assert r"& $2.25 \times 10^{8} \pm 2.1 \times 10^{-7}^{*}$ \\" in latex(
        ["a"], {"b": [("2.25e+08±2.1e-07", True)]}
    )
    assert r"\midrule" + "\nlocal" in found.to_latex()
    assert "\n{}[a] \\textless{}b\\textgreater{} & $1$ \\\\\n{}*q & $2$ \\\\" in latex(
        ["x"], {"[a] <b>": [("1", False)], "*q": [("2", False)]}
    )
    paired = found.differences().to_latex().splitlines()
    assert paired[2] == r"minus fedavg & acc \% & worst 10\% & var \%$^2$ & Gini \\"
    assert paired[4] == "no-op & " + r"$+0.0\ [+0.0, +0.0]$ & " * 3 + r"$+.000\ [+.000, +.000]$ \\"


def test_a_data_frame_of_all_that_was_tried(tuned):
    frame = tuned.to_pandas(tried=True)
    assert len(frame) == 2 * (3 + 3)
    rows = frame[frame["chosen"]].reset_index()
    assert [*rows["rule"]] == ["fedavg", "fedavg", "qfedavg", "qfedavg"]
    assert_allclose(rows["accuracy"], np.concatenate([tuned.measures()[rule]["accuracy"] for rule in tuned.runs]))
    one = frame[(frame["rule"] == "qfedavg") & (frame["setting"] == "q=5")]
    assert_allclose(one["validation_gini"], tuned.tried["qfedavg"]["q=5"]["gini"])


def test_grids_of_one_value_give_settings_and_nothing_is_chosen(tuned):
    """As those that another comparison chose, on fresh replicates; the splits that choose are not needed."""

    def tested(rule, data, lr=0.1):
        trainer = ff.local_sgd(optax.sgd(lr), epochs=1, batch_size=2)
        return ff.simulation(toy.linear, data, aggregator=rule, selector=ff.uniform(3), trainer=trainer)

    rules, given = {"fedavg": ff.fedavg(), "qfedavg": q_fedavg}, {"fedavg": {"lr": [0.01]}, "qfedavg": {"q": [5.0]}}
    got = ff.compare(rules, tested, replicates=2, references=False, tune=given, **SHORT)
    assert got.settings == got.tried == {}
    assert "Rows: fedavg has lr=0.01; qfedavg is q_fedavg(q=5)." in " ".join(got.table().split())
    assert "validation" not in got.table()
    assert_array_equal(got.runs["fedavg"][1].accuracy, tuned.tried_runs["fedavg"]["lr=0.01"][1].accuracy)


def test_examples_that_judge_every_replicate_are_noticed(found):
    """Also where features differ, as gaps that are filled by what each replicate trains on."""
    assert not found.same_examples

    def federation(seed):
        x, y, who = np.full((12, 2), float(seed), np.float32), np.arange(12) % 2, np.arange(12) % 3
        test = {"test": (x + 1, y), "test_client_id": who}
        return ff.FederatedData.from_arrays(x, y, client_id=who, split=(1.0, 0.0, 0.0), seed=seed, **test)

    def tested(rule, data):
        return ff.simulation(toy.linear, data, aggregator=rule, trainer=ff.local_sgd(optax.sgd(0.1), batch_size=2))

    got = ff.compare(
        {"fedavg": ff.fedavg()}, tested, references=False, replicates=2, **{**SHORT, "federation": federation}
    )
    assert got.same_examples


def test_from_another_baseline_the_same_difference_has_the_other_sign(found):
    there, back = found.differences()["fedmaba"], found.differences("fedmaba")["fedavg"]
    for measure in there:
        assert there[measure].difference.mean == -back[measure].difference.mean
    with pytest.raises(ValueError, match="baseline must be one of fedavg, no-op, fedmaba, got 'fedmba'"):
        found.differences("fedmba")


def test_an_interrupted_comparison_goes_on(tmp_path, found):
    kept = {**SHORT, "checkpoint": tmp_path, "references": False}
    rules = {name: RULES[name] for name in ("fedavg", "fedmaba")}
    first, again = (ff.compare(rules, build, replicates=count, **kept) for count in (2, 3))
    for rule in rules:
        for one, other in zip(first.runs[rule], again.runs[rule]):
            assert_array_equal(one.accuracy, other.accuracy)
        assert_array_equal(again.runs[rule][2].accuracy, found.runs[rule][2].accuracy)


def test_reference_rows_go_on_from_where_they_were_stopped(tmp_path, monkeypatch, capsys, found, tuned):
    train, trained = Reference.train, []

    def killed(self, key, client, *rest):
        if len(trained) == 3:
            raise RuntimeError("killed")
        trained.append(client)
        return train(self, key, client, *rest)

    def noted(self, key, client, *rest):
        trained.append(client)
        return train(self, key, client, *rest)

    def play(trains, replicates=1, **given):
        monkeypatch.setattr(Reference, "train", trains)
        settings = {"replicates": replicates, "threads": 1, "checkpoint": tmp_path, **given}
        return ff.compare({"fedavg": ff.fedavg()}, build, **settings, **SHORT)

    with pytest.raises(RuntimeError, match="killed"):
        play(killed)
    play(noted)
    assert trained == [0, 1, 2, 3, 4, 5]  # the last is the pooled one
    pieces = "1 run in 1 piece and 2 pieces of the rows (local) and (pooled)"
    assert capsys.readouterr().err == f"{pieces}; of 1 piece the results are kept, of 1 piece a part\n"
    again = play(None)  # nothing can be trained
    assert capsys.readouterr().err == f"{pieces}; of 3 pieces the results are kept\n"
    for row, histories in again.references.items():
        assert_array_equal(histories[0].loss, found.references[row][0].loss)

    more = play(noted, replicates=2)
    assert trained == [0, 1, 2, 3, 4, 5] * 2
    for row, histories in more.references.items():
        assert_array_equal(histories[0].loss, found.references[row][0].loss)
        assert_allclose(histories[1].loss, found.references[row][1].loss, rtol=1e-5)
    chosen = {name: [value] for name, value in tuned.settings["fedavg"].items()}
    other = play(noted, tune={"fedavg": chosen})
    assert trained == [0, 1, 2, 3, 4, 5] * 3
    for row, histories in other.references.items():
        assert not np.allclose(histories[0].loss, found.references[row][0].loss)
        assert_allclose(histories[0].loss, tuned.references[row][0].loss, rtol=1e-5)
    for file in (tmp_path / "references").glob("pooled-*.npz"):
        file.write_bytes(b"half")
    with pytest.raises(ValueError, match=r"pooled-\w+.npz cannot be read .*; remove it to train its row again"):
        play(None)


def test_fresh_replicates_are_those_of_other_seeds_and_rules_that_share_a_program_are_told(capsys, found):
    rules = {"fedavg": ff.fedavg(), "uniform": ff.fedavg("uniform"), "no-op": ff.fedprox(mu=0.0)}
    got = ff.compare(rules, build, replicates=1, first_seed=1, progress=True, **SHORT)
    for rule in ("fedavg", "no-op"):
        assert_allclose(got.runs[rule][0].accuracy, found.runs[rule][1].accuracy, atol=1e-6)
    for row, histories in got.references.items():
        assert_allclose(histories[0].loss, found.references[row][1].loss, rtol=1e-5)
    assert "one replicate from seed 1 on, each" in got.table()
    assert "2 programs: fedavg, uniform | no-op\n" in capsys.readouterr().err


def test_larger_federations_that_come_later_leave_what_is_kept_as_it_is(tmp_path, monkeypatch):
    def growing(seed):
        return toy.federation((4, 5, 6 + 2 * seed), seed=seed)

    rules = {"fedavg": ff.fedavg()}
    few = {**SHORT, "federation": growing, "checkpoint": tmp_path, "references": False}
    first = ff.compare(rules, build, replicates=2, **few)
    more = ff.compare(rules, build, replicates=3, **few)
    _, alone = ff.run(build(rules["fedavg"], growing(2)), 2, 4, eval_every=1)
    assert_allclose(more.runs["fedavg"][2].accuracy, alone.scores["test"].accuracy, atol=1e-6)
    monkeypatch.setattr(program_run, "go_on", None)  # from here on nothing can be trained
    again, fewer = (ff.compare(rules, build, replicates=count, **few) for count in (3, 1))
    for found in (more, again, fewer):
        for one, other in zip(first.runs["fedavg"], found.runs["fedavg"]):
            assert_array_equal(one.accuracy, other.accuracy)
    with pytest.raises(ValueError, match="rounds was 4 and is 5"):
        ff.compare(rules, build, replicates=9, **{**few, "rounds": 5})
    others = {0: growing(0), 1: toy.federation((9, 5, 8), seed=1)}
    with pytest.raises(ValueError, match="the room for all replicates' examples was 17 and is 22"):
        ff.compare(rules, build, replicates=2, **{**few, "federation": others.__getitem__})
    assert (tmp_path / "replicates.json").read_text() == "[2, 1]\n"  # what was refused has added nothing
    (tmp_path / "replicates.json").write_text("[2, ")
    with pytest.raises(ValueError, match=r"replicates.json cannot be read \(JSONDecodeError\)"):
        ff.compare(rules, build, replicates=2, **few)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rules": {}}, "rules must map names to rules"),
        ({"rules": {"fedavg": 3}}, r"rules\['fedavg'\] must be a rule such as ff.fedavg\(\), or a factory, got 3"),
        ({"rules": {"q": q_fedavg}}, r"rules\['q'\] needs q: give it a value, or values in tune"),
        (
            {"build": lambda rule, data, lr: 3},
            "build needs lr: give it a value, or values in tune",
        ),
        (
            {"rules": {"a": lambda lr=1.0: ff.fedavg()}},
            r"lr is a setting of both rules\['a'\] and build, and must have one default, .*got 1.0 and 0.1",
        ),
        ({"clients": [True]}, r"clients must be bool\[5\], True for those to judge by, got bool\[1\]"),
        ({"clients": [False] * 5}, "got nobody"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"first_seed": -1}, "first_seed must be at least 0, got -1"),
        ({"rules": {3: ff.fedavg()}}, "rules must have words as names, got 3"),
        ({"checkpoint": 3}, "checkpoint must be a folder, got 3"),
        (
            {"build": lambda rule, data: build(rule, toy.federation((4, 4, 4)))},
            "build must use the data that it is given",
        ),
        ({"tune": {"fedavgg": {"lr": [0.1]}}}, "rule in tune must be one of fedavg.*did you mean 'fedavg'"),
        ({"tune": {"fedavg": {"lr": []}}}, r"grid\['lr'\] must have at least one value"),
        ({"tune": {"fedavg": {}}}, r"tune\['fedavg'\] must map settings to their values, got \{\}"),
        (
            {"tune": {"fedavg": {"rate": [0.1]}}},
            r"must be one of lr, got 'rate': a rule that is made has no settings to tune, its factory has",
        ),
        ({"choose": "best"}, "choose must be one of accuracy, worst10"),
        (
            {
                "build": leaning,
                "tune": {"fedavg": {"lr": [0.1, 0.2]}},
                "choose": "gini",
            },
            'choose="gini" needs a metric of values from 0, got lean, which may be below',
        ),
        ({"baseline": "afl"}, "baseline must be one of fedavg"),
        ({"replicates": 0}, "replicates must be at least 1"),
        ({"split": "train"}, "build must evaluate the train split"),
        ({"federation": 3}, "federation must be a FederatedData or a function of a seed"),
        ({"federation": lambda seed: seed}, "federation must return a FederatedData for every seed"),
        ({"build": lambda rule, data: 3}, r"build must return an ff.simulation"),
    ],
)
def test_wrong_calls_say_what_is_wrong(change, sentence):
    call = {"rules": {"fedavg": ff.fedavg()}, "build": build, **SHORT, **change}
    with pytest.raises(ValueError, match=sentence):
        ff.compare(**call)


def test_what_a_rule_raises_says_which_of_the_rules_it_is():
    rules = {"fedavg": ff.fedavg(), "mine": ff.Aggregator(lambda sizes, key: (), lambda s, report, key: report.los)}
    with pytest.raises(AttributeError, match=r"report has no signal 'los', .*; did you mean 'loss'") as error:
        ff.compare(rules, build, **SHORT)
    assert error.value.__notes__[-1] == "This is of rules['mine']."


def test_a_python_if_about_a_tuned_number_is_told_of_jnp_where():
    def branching(power):
        return ff.fedavg("uniform" if power > 1 else "size")

    with pytest.raises(jax.errors.TracerBoolConversionError, match=r"a swept setting: use jnp.where\n"):
        ff.compare({"mine": branching}, build, tune={"mine": {"power": [0.5, 2.0]}}, **SHORT)


def test_so_it_is_in_a_rule_that_shares_a_program():
    def branching(power):
        def weigh(state, report, key):
            return (report.n if power > 1 else report.n / report.n.sum()), state

        return ff.Aggregator(lambda sizes, key=None: (), weigh)

    rules = {"fedavg": ff.fedavg(), "mine": branching}
    with pytest.raises(jax.errors.TracerBoolConversionError, match=r"a swept setting: use jnp.where\n"):
        ff.compare(rules, build, tune={"mine": {"power": [0.5, 2.0]}}, **SHORT)


def test_a_criterion_needs_the_validation_split():
    def without(rule, data, lr=0.1):
        trainer = ff.local_sgd(optax.sgd(lr), epochs=1, batch_size=2)
        return ff.simulation(toy.linear, data, aggregator=rule, selector=ff.uniform(3), trainer=trainer)

    with pytest.raises(ValueError, match="build must evaluate the validation split"):
        ff.compare({"fedavg": ff.fedavg()}, without, tune={"fedavg": {"lr": [0.1, 0.2]}}, **SHORT)


def test_values_that_no_accuracy_has_stop_it_before_the_end():
    far = ff.Metric(lambda outputs, y: 5.0 + 0 * ff.losses.accuracy(outputs, y), name="accuracy")

    def of_distance(rule, data):
        trainer = ff.local_sgd(optax.sgd(0.1), batch_size=2)
        return ff.simulation(toy.linear, data, aggregator=rule, trainer=trainer, metric=far)

    settings = {"federation": toy.federation(), "rounds": 1, "replicates": 1, "references": False}
    with pytest.raises(ValueError, match=r"the metric's values must hold accuracy in .* got 5 to 5: .* metric=ff"):
        ff.compare({"fedavg": ff.fedavg()}, of_distance, **settings)


def test_one_replicate_has_no_differences():
    rules = {"a": ff.fedavg(), "b": partial(ff.fedavg, "uniform")}
    one = ff.compare(rules, build, replicates=1, references=False, **SHORT)
    assert "±" not in one.table().splitlines()[2]
    assert "Rows: b is fedavg(weighting=uniform)." in one.table()
    with pytest.raises(ValueError, match="a difference needs at least two replicates, got 1"):
        one.differences()


def test_models_that_clients_keep_can_be_compared():
    def remembering(rule, data):
        trainer = ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=2)
        evaluate = ["test@personal", "test"]
        return ff.simulation(toy.linear, data, aggregator=rule, trainer=trainer, evaluate=evaluate)

    shown = ff.compare({"ditto": ff.ditto()}, remembering, replicates=2, split="test@personal", **SHORT)
    assert "test@personal" in shown.table()
    kept, received = (measured(shown.runs["ditto"], split, 2)["accuracy"] for split in ("test@personal", "test"))
    measures = shown.measures()["ditto"]
    assert_array_equal(measures["accuracy"], kept)
    assert not np.array_equal(kept, received)
    assert np.isfinite(measures["better_off"]).all()
    assert [examples.tolist() for examples in shown.examples] == [[1] * 5] * 2


def test_rules_whose_clients_are_drawn_by_their_state_are_not_joined():
    """A selector of the user's own, by AFL's mixture: each rule in a program of its own, as alone."""

    def select(state, key, context):
        chance = jnp.log(context.rule.weights + 1e-9) + jax.random.gumbel(key, context.rule.weights.shape)
        return jax.lax.top_k(chance, 2)[1].astype(jnp.int32), state

    by_weights = ff.Selector(lambda sizes, key=None: (), select, lambda state, report: state, 2)
    data = toy.federation()

    def build(rule, data):
        return toy.simulation(data, rule, selector=by_weights)

    rules = {"slow": ff.afl(0.01), "fast": ff.afl(0.5)}
    found = ff.compare(rules, build, federation=data, replicates=2, rounds=3, baseline="slow", references=False)
    for name, rule in rules.items():
        alone = ff.run(build(rule, data), 1, 3)[1]
        assert found.runs[name][1].ids.tolist() == alone.ids.tolist()


def test_functions_of_one_name_have_checkpoints_of_their_own(tmp_path):
    def scheduled(rule, data, schedule):
        trainer = ff.local_sgd(optax.sgd(0.1), steps=1, batch_size=2, schedule=schedule)
        return ff.simulation(**(build(rule, data).arguments | {"trainer": trainer}))

    tune = {"fedavg": {"schedule": [lambda round: 1.0, lambda round: jnp.float32(0.5)]}}
    kept = {"replicates": 1, "references": False, "checkpoint": tmp_path, "tune": tune, **SHORT}
    first, again = (ff.compare({"fedavg": ff.fedavg()}, scheduled, **kept) for _ in range(2))
    assert list(first.tried["fedavg"]) == ["schedule=<lambda>", "schedule=<lambda> #2"]
    assert len([*tmp_path.glob("*-replicate-0")]) == 2
    chex.assert_trees_all_equal(first.tried_runs, again.tried_runs)
