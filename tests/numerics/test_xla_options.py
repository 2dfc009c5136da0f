"""Programs compiled with options of ours: only where they are meant, and with the same results."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toy import KEY, close, compilations, optimized

import fedjax_fair as ff
from fedjax_fair.engine.programs import _start, go_on
from fedjax_fair.engine.run import STATIC, _play, play
from fedjax_fair.numerics.model_size import is_convolutional
from fedjax_fair.numerics.xla_options import CONVOLUTIONAL, SMALL, TINY_QUICK, compiled, of_this_xla, once

WRONG = {"xla_no_such_option": True}
IMAGES = jnp.zeros((2, 16, 16, 1))
UNKNOWN = pytest.raises(jax.errors.JaxRuntimeError, match="xla_no_such_option")
"""What the compiler says to an option that reaches it."""


@pytest.fixture(autouse=True)
def free_to_choose(monkeypatch):
    """As users run it: these tests are otherwise told what XLA is to do."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    with optimized(True):
        yield


@pytest.fixture
def everywhere(monkeypatch):
    """On accelerators, too, a CPU's choices."""
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")


def test_options_reach_the_compiler_where_they_are_wanted(everywhere):
    double = compiled(lambda x: 2 * x, [(WRONG, lambda x: x.ndim == 1)])
    assert double(jnp.array(3)) == 6
    with UNKNOWN:
        double(jnp.array([3]))


def test_an_option_that_xla_took_away_is_left_out_and_the_others_are_not(monkeypatch, everywhere):
    """jaxlib 0.11 refuses ``xla_cpu_use_fusion_emitters``, which 0.10 takes."""
    monkeypatch.setattr("fedjax_fair.numerics.xla_options.PASSING", frozenset(WRONG | SMALL))
    assert of_this_xla(WRONG | SMALL) == SMALL
    assert compiled(lambda x: 2 * x, [(WRONG, lambda x: True)])(3) == 6
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_never_there"):
        compiled(lambda x: 2 * x, [(WRONG | {"xla_never_there": True}, lambda x: True)])(3)


def test_so_is_one_that_has_lost_the_value_of_that_name(everywhere):
    gone = dict.fromkeys(CONVOLUTIONAL, "LIBRARY_FUSION_TYPE_NEVER_THERE")
    assert of_this_xla(gone) == {}
    assert compiled(lambda x: 2 * x, [(gone, lambda x: True)])(3) == 6


def test_an_option_with_a_value_that_it_cannot_have_is_no_missing_option(monkeypatch):
    monkeypatch.setattr("fedjax_fair.numerics.xla_options.PASSING", frozenset(SMALL))
    with pytest.raises(jax.errors.JaxRuntimeError):
        of_this_xla({"xla_backend_optimization_level": "nonsense"})


def test_of_several_choices_the_first_that_is_meant_is_taken(everywhere):
    choices = [({}, lambda x: x > 3), (WRONG, lambda x: x > 2)]
    double = compiled(lambda x: 2 * x, choices)
    assert [double(x) for x in (1, 4)] == [2, 8]
    with UNKNOWN:
        double(3)


def test_the_users_word_and_other_hardware_come_first(monkeypatch, everywhere):
    double = compiled(lambda x: 2 * x, [(WRONG, lambda x: True)])
    with UNKNOWN:
        double(3)
    with optimized(False):
        assert double(3) == 6
    monkeypatch.setenv("XLA_FLAGS", "--xla_no_such_option=false")
    assert double(3) == 6
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert double(3) == 6


def test_static_arguments_and_donation_are_those_of_jit():
    power = compiled(
        lambda x, *, by: x**by, [({}, lambda *_, **__: True)], static_argnames="by", donate_argnames="x"
    )
    given = jnp.array([2.0, 3.0])
    assert power(given, by=3).tolist() == [8, 27]
    assert given.is_deleted()


def test_what_runs_once_has_options_only_where_it_is_no_part_of_another_program(monkeypatch, everywhere):
    monkeypatch.setattr("fedjax_fair.numerics.xla_options.ONCE", WRONG)
    double, three = once(lambda x: 2 * x), jnp.array(3)
    with UNKNOWN:
        double(three)
    assert jax.jit(double)(three) == 6
    assert jax.jit(lambda x: double(x=x))(three) == 6
    assert jax.jit(lambda: double(three))() == 6
    assert jax.eval_shape(lambda: double(three)).shape == ()
    assert jax.vmap(double)(jnp.arange(3)).tolist() == [0, 2, 4]
    assert jax.grad(double)(3.0) == 2
    assert jax.lax.scan(lambda c, _: (c + double(three), None), 0, length=2)[0] == 12


MODELS = {"mlp": lambda: ff.models.mlp((8,)), "cnn": lambda: ff.models.cnn(channels=(2, 3), hidden=4)}


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_a_stock_models_first_draw_is_one_program_for_all_who_ask_for_the_same(build):
    with compilations() as first:
        drawn = build().init(KEY, IMAGES)
    with compilations() as later:
        build().init(jax.random.key(1), IMAGES)
    assert first.names.count("jit(_draw)") == 1
    assert later.names.count("jit(_draw)") == 0
    with jax.disable_jit():
        close(drawn, build().init(KEY, IMAGES), rtol=1e-5, atol=1e-7)


def test_a_cnns_channels_are_whole_numbers():
    with pytest.raises(ValueError, match=r"^channels\[0\] must be a whole number, got 2\.5$"):
        ff.models.cnn(channels=(2.5, 3))


def simulation(kind):
    model, shape = KINDS[kind]
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(120, *shape)).astype(np.float32), rng.integers(0, 10, 120)
    data = ff.FederatedData.from_arrays(x, y, client_id=np.arange(120) % 4)
    trainer = ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=10)
    return ff.simulation(model, data, aggregator=ff.fedmaba(), trainer=trainer)


def programs(function):
    """How many there are of each kind."""
    return np.array([function.plain._cache_size(), *(tuned._cache_size() for _, tuned in function.tuned)])


KINDS = {
    "tiny": (ff.models.mlp(()), (20,)),
    "small": (ff.models.mlp((100,)), (20,)),
    "large": (ff.models.mlp((2000,)), (20,)),
    "convolutional": (ff.models.cnn(channels=(2, 3), hidden=4), (16, 16, 1)),
}
"""Models, and the shape of an example."""


@pytest.mark.parametrize(
    ("kind", "seeds", "side_by_side", "quick"),
    [
        ("tiny", 2, 2, 1),
        ("tiny", 2, 1, 0),
        ("tiny", 1, None, 0),
        ("small", 2, 2, 0),
        ("large", 2, 2, 0),
        ("convolutional", 2, 1, 0),
    ],
)
def test_rounds_of_some_models_are_tuned_in_a_run_and_in_a_sweep(everywhere, kind, seeds, side_by_side, quick):
    """Those of tiny ones are compiled quickly where several runs go side by side, and there alone."""
    large, small, convolutional = kind == "large", kind in ("tiny", "small"), kind == "convolutional"
    sim = simulation(kind)
    before = programs(_play), programs(go_on), programs(_start)
    ff.run(sim, 0, 2, eval_every=2)
    ff.sweep(lambda: sim, {}, seeds=seeds, rounds=2, eval_every=2, side_by_side=side_by_side)
    if not of_this_xla(CONVOLUTIONAL):  # then one program is counted for both
        large = convolutional = large or convolutional
    assert (programs(_play) - before[0]).tolist() == [large, small, convolutional]
    alike = of_this_xla(TINY_QUICK) == SMALL  # then one program is counted for both
    some = [small, small] if alike else [quick, small - quick]
    assert (programs(go_on) - before[1]).tolist() == [large, *some, convolutional]
    assert (programs(_start) - before[2]).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("channels", "hidden", "expected"), [((8, 16), 16, True), ((8, 16), 512, False), ((512, 512), 16, False)]
)
def test_a_model_is_convolutional_if_narrow_kernels_are_most_of_it(channels, hidden, expected):
    model = ff.models.cnn(channels=channels, hidden=hidden)
    assert is_convolutional(jax.eval_shape(model.init, KEY, IMAGES)) == expected


def test_dense_layers_and_attention_are_no_convolutions():
    assert not is_convolutional(jax.eval_shape(ff.models.mlp((8,)).init, KEY, IMAGES))
    attention = [jax.ShapeDtypeStruct((64, 4, 16), jnp.float32)] * 4  # flax's kernels of three axes
    assert not is_convolutional(attention)


@pytest.mark.parametrize(("kind", "tunings"), [("tiny", (SMALL, TINY_QUICK)), ("convolutional", (CONVOLUTIONAL,))])
def test_tuned_rounds_have_the_results_that_xlas_defaults_give(kind, tunings):
    sim = simulation(kind)
    call = {"step": sim.step, "evaluate": sim.evaluate, "deploy": sim.deploy, "evaluations": 3, "every": 5}

    def played(**compiler):
        return jax.jit(play, static_argnames=STATIC, **compiler)(sim.init(KEY), sim.data, **call)

    theirs, (expected, their_scores) = played()
    for options in tunings:
        mine, (info, scores) = played(compiler_options=of_this_xla(options))
        close(mine.params, theirs.params, rtol=1e-5, atol=1e-6)
        close(scores["test"].loss, their_scores["test"].loss, rtol=1e-5)
        np.testing.assert_array_equal(info.ids, expected.ids)
