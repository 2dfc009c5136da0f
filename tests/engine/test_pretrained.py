"""A run starts from the user's own parameters: the same for every seed and rule, and judged before round 1."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from toy import DRAWS, KEY, close, linear, linear_init, simulation

import fedjax_fair as ff

GIVEN = {"w": np.full((4, 3), 0.5, np.float32), "b": np.array([1, 2, 3], np.float32)}


@pytest.fixture(scope="module")
def sim(data, quick_to_compile):
    return simulation(data, trainer=DRAWS, selector=ff.uniform(2), params=GIVEN)


@pytest.fixture(scope="module")
def played(sim):
    return ff.run(sim, KEY, rounds=4, eval_every=2, eval_first=True)


def test_every_seed_starts_from_the_parameters_given_and_draws_the_rest_as_ever(sim, data):
    drawn = simulation(data, trainer=DRAWS, selector=ff.uniform(2))
    for seed in (0, 1):
        given, other = (made.init(jax.random.key(seed)) for made in (sim, drawn))
        close(given.params, GIVEN, rtol=0)
        assert (jax.random.key_data(given.key) == jax.random.key_data(other.key)).all()
        with pytest.raises(AssertionError):
            close(other.params, GIVEN)


def test_round_0_is_the_model_given(sim, played, data):
    _, history = played
    assert history.rounds.tolist() == [0, 2, 4]
    assert history.ids.shape == (4, 2)
    assert history.accuracy.shape == history.failed.shape == (3, 5)
    close(sim.evaluate(GIVEN, data)["test"].accuracy, history.accuracy[0], rtol=0)
    assert set(history.to_pandas()["round"]) == {0, 2, 4}


def test_without_it_the_history_is_the_same_but_for_round_0(sim, played):
    state, history = ff.run(sim, KEY, rounds=4, eval_every=2)
    close(state.params, played[0].params, rtol=0)
    assert history.rounds.tolist() == [2, 4]
    np.testing.assert_array_equal(history.loss, played[1].loss[1:])


def test_the_parameters_given_stay_the_users(sim, played):
    assert (GIVEN["w"] == 0.5).all()
    close(sim.init(KEY).params, GIVEN, rtol=0)  # nothing of it was donated


def test_a_continued_run_may_begin_with_an_evaluation_too(sim, played):
    _, history = ff.run(sim, state=played[0], rounds=2, eval_every=2, eval_first=True)
    assert history.rounds.tolist() == [4, 6]
    np.testing.assert_array_equal(history.loss[0], played[1].loss[-1])


def test_a_checkpoint_keeps_round_0_once(sim, played, tmp_path):
    seen = []

    def first(state, history):
        seen.append(history.rounds.tolist())
        return len(seen) == 1  # stops right after round 0

    call = {"rounds": 4, "eval_every": 2, "eval_first": True, "checkpoint": tmp_path / "kept", "chunk": 1}
    ff.run(sim, KEY, on_chunk=first, **call)
    state, history = ff.run(sim, KEY, **call)
    assert seen == [[0]]
    assert history.rounds.tolist() == [0, 2, 4]
    close(state.params, played[0].params, rtol=0)
    np.testing.assert_array_equal(history.loss, played[1].loss)
    with pytest.raises(ValueError, match="eval_every was '2 and round 0' and is 2"):
        ff.run(sim, KEY, **call | {"eval_first": False})


def test_a_sweep_starts_every_run_from_them_also_where_they_depend_on_a_swept_float(played, data):
    def build(share):
        return simulation(data, trainer=DRAWS, params=jax.tree.map(lambda leaf: share * leaf, GIVEN))

    swept = ff.sweep(build, {"share": [0.0, 1.0]}, seeds=2, rounds=2, eval_every=2, eval_first=True)
    for point, wanted in zip(swept.histories, (np.full(5, np.log(3)), played[1].loss[0])):
        for history in point:
            assert history.rounds.tolist() == [0, 2]
            np.testing.assert_allclose(history.loss[0], wanted, rtol=1e-5)


def test_a_comparison_starts_every_rule_from_them(data):
    def build(rule, data):
        return simulation(data, rule, ff.local_sgd(optax.sgd(1e-30), steps=1, batch_size=3), params=GIVEN)

    rules = {"fedavg": ff.fedavg(), "fedmaba": ff.fedmaba()}
    with pytest.warns(UserWarning, match="no update moved the model"):
        found = ff.compare(rules, build, federation=data, replicates=2, rounds=1, references=False)
    losses = [history.loss for runs in found.runs.values() for history in runs]
    assert all(np.array_equal(loss, losses[0]) for loss in losses)


def test_a_model_may_be_given_in_any_tree_of_the_same_paths(data):
    class Pair(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Sequential([nn.Dense(5), nn.relu, nn.Dense(3)])(x)

    module = Pair()
    variables = module.init(KEY, np.zeros((1, 4), np.float32))
    flat = {
        "/".join(key.key for key in path): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(variables["params"])
    }
    sim = ff.simulation(module, data, aggregator=ff.fedavg(), trainer=DRAWS, params=flat)
    close(sim.init(KEY).params, variables["params"], rtol=0)


def wrong(params, model=linear):
    return lambda data: ff.simulation(model, data, aggregator=ff.fedavg(), trainer=DRAWS, params=params)


class Net(nnx.Module):
    def __init__(self, rngs):
        self.head = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x):
        return self.head(x)


NET = Net(nnx.Rngs(0))
STATE = ff.SimState(0, KEY, GIVEN, (), (), ())


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"params": GIVEN}, r"the model's parameters alone, got flax's variables .* pass variables\[\"params\"\]"),
        ({"params": GIVEN, "batch_stats": {}}, "variables .* beside batch_stats: pass"),
        (STATE, "got a state: pass state.params"),
        (NET, "got nnx's Net: pass nnx.to_pure_dict"),
        (nnx.state(NET, nnx.Param), "got nnx's State: pass nnx.to_pure_dict"),
        ("model.safetensors", r"got 'model.safetensors': pass ff.load_params\(path\)"),
        ({"w": GIVEN["w"]}, "must have the model's parameters, b, w, got w: b missing"),
        (GIVEN | {"c": GIVEN["b"]}, "got b, c, w: c unknown"),
        ({}, "got none: b, w missing"),
        (GIVEN | {"w": GIVEN["w"].T}, r"params at w must have the model's shape, \[4, 3\], got \[3, 4\]"),
        (GIVEN | {"w": GIVEN["w"].astype(float)}, "the model's type, float32, got float64: cast it, jax.tree.map"),
        (GIVEN | {"b": [1.0, 2.0, 3.0]}, "got b/0, b/1, b/2 and 1 more: b missing and b/0, b/1, b/2 unknown"),
        (GIVEN | {"b": "zeros"}, "params at b must be an array of JAX or NumPy, got a str"),
        (GIVEN | {"b": GIVEN["b"] * np.nan}, "params at b must be finite, got 3 of 3 numbers that are not"),
    ],
)
def test_other_parameters_are_refused_in_a_sentence(params, sentence, data):
    with pytest.raises(ValueError, match=sentence) as refusal:
        wrong(params)(data)
    assert "\n" not in str(refusal.value)


def test_a_state_with_other_parameters_says_what_they_are(sim, played):
    with pytest.raises(ValueError, match=r"state.params must be .* got flax's variables"):
        ff.run(sim, state=played[0]._replace(params={"params": GIVEN}))
    with pytest.raises(ValueError, match="eval_first must be True or False, got 10"):
        ff.run(sim, KEY, eval_first=10)


def test_a_model_with_a_layer_called_params_takes_it(data):
    def apply(params, x):
        return x @ params["params"]["w"] + params["params"]["b"][None, :]

    model = (lambda key, x: {"params": linear_init(key, x)}, apply)
    made = wrong({"params": GIVEN}, model)(data)
    close(made.init(KEY).params, {"params": GIVEN}, rtol=0)


def test_one_parameter_may_be_a_number(data):
    model = (lambda key, x: {"scale": 1.0}, lambda params, x: params["scale"] * x[:, :3])
    assert wrong({"scale": 2.0}, model)(data).init(KEY).params == {"scale": jnp.float32(2)}
