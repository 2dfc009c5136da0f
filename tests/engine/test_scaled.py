"""Bytes are scaled where they are images. A model that takes them for tokens is told so, however it reads them."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_fair as ff

RNG = np.random.default_rng(0)
BYTES = RNG.integers(0, 50, (40, 5, 6)).astype(np.uint8)
LABELS = np.arange(40) % 2


def make(model, x=BYTES, y=LABELS, **more):
    data = ff.FederatedData.from_arrays(x, y, partition=ff.partition.iid(2), **more)
    trainer = ff.local_sgd(optax.sgd(0.1), steps=1, batch_size=2)
    return ff.simulation(model, data, aggregator=ff.fedavg(), trainer=trainer)


class Tokens(nn.Module):
    cast: bool = False

    @nn.compact
    def __call__(self, x):
        x = x.astype(jnp.int32) if self.cast else x
        return nn.Dense(2)(nn.Embed(50, 3)(x).mean(tuple(range(1, x.ndim))))


def test_tokens_that_were_scaled_are_refused_by_name():
    with pytest.raises(ValueError, match=r"x is uint8 and was scaled as images are, .* normalizer=None"):
        make(Tokens())


def test_tokens_that_were_scaled_and_cast_are_refused_by_name():
    with pytest.raises(ValueError, match=r"says the same of three different ones: .* normalizer=None"):
        make(Tokens(cast=True))


@pytest.mark.parametrize("cast", [False, True])
def test_tokens_as_they_are_pass(cast):
    make(Tokens(cast), normalizer=None)
    make(Tokens(cast), BYTES[:, 0])  # [E, T] is no image


def test_a_model_that_says_the_same_of_all_examples_passes():
    """A baseline: it would say so of unscaled images, too."""
    make((lambda key, x: {"b": jnp.zeros(2)}, lambda p, x: jnp.zeros((len(x), 2)) + p["b"][None, :]))


def test_bytes_that_may_be_either_are_refused_where_they_are_read():
    with pytest.raises(ValueError, match="for tokens or other numbers as they are normalizer=None"):
        make(Tokens(), 5 * BYTES[:, 0])


class Image(nn.Module):
    padding: str = "SAME"

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(2, (3, 3), padding=self.padding)(x)
        return nn.Dense(2)(x.reshape(x.shape[0], -1))


@pytest.mark.parametrize(
    ("padding", "sentence"),
    [
        ("SAME", "outputs for an example change with the others of the batch: .* without a channel axis"),
        (
            "VALID",
            r"must take one example, float32\[1, 5, 6\], got ZeroDivisionError: .*: images without a channel",
        ),
    ],
)
def test_a_batch_of_images_that_is_read_as_one_is_refused(padding, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(Image(padding))
    make(Image(padding), BYTES[..., None])


def test_a_models_own_mistake_is_raised_as_it_is():
    """Its traceback has the line."""

    class Wrong(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(2)(nothing)  # noqa: F821

    with pytest.raises(NameError, match="nothing"):
        make(Wrong())


def test_labels_with_gaps_are_to_be_renumbered():
    for classes in (3, 10):
        with pytest.raises(ValueError, match=r"got label 30: renumber the 3 labels, np\.unique"):
            make(ff.models.logistic_regression(classes), y=np.array([10, 20, 30])[np.arange(40) % 3])
