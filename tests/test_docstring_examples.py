"""The examples in docstrings are true; those that need a run share that of the example of ``ff.run``."""

import doctest
import importlib
import inspect
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_fair as ff

PACKAGE = Path(ff.__file__).parent
EXAMPLES = [path for path in sorted(PACKAGE.rglob("*.py")) if ">>> " in path.read_text()]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture(scope="module")
def shared():
    """What every example may name: the libraries, and data, trainer, sim, state and history of ``ff.run``'s."""
    names = {"ff": ff, "jax": jax, "jnp": jnp, "np": np, "optax": optax}
    (example,) = doctest.DocTestFinder(recurse=False).find(ff.run, "run", globs=names)
    for line in example.examples:
        exec(compile(line.source, "ff.run", "single"), example.globs)
    return {name: value for name, value in example.globs.items() if name != "__builtins__"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_of_a_module(path, shared):
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    done = doctest.testmod(importlib.import_module(name), extraglobs=shared, optionflags=FLAGS)
    assert done.attempted
    assert not done.failed


def test_there_are_examples():
    have = {"run", "sweep", "predict", "losses", "federated", "fairness", "size_skew", "reads"}
    assert have <= {path.stem for path in EXAMPLES}
    assert ">>> " in inspect.getdoc(ff.data.synthetic)
