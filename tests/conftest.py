"""Shared by all tests: strict rank promotion, quick compilation, rare garbage collection, one cache of images."""

import gc
import os
import signal

import compiler

os.environ["XLA_FLAGS"] = compiler.flags()  # before JAX starts

import jax
import pytest
import toy

jax.config.update("jax_numpy_rank_promotion", "raise")
gc.freeze()  # nearly all that tracing makes lives on: looking through it took a thirteenth of the time
gc.set_threshold(70_000, 50, 50)


@pytest.fixture(scope="session", autouse=True)
def cache_directory(tmp_path_factory):
    """Decode each dataset once a session, and compile equal programs once, away from the user's own cache.

    Of several workers each has its own: JAX writes a program to its place, where another could read half of it.
    """
    if "FEDJAX_FAIR_CACHE" not in os.environ:
        os.environ["FEDJAX_FAIR_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        programs = {"compilation_cache_dir": str(tmp_path_factory.mktemp("programs"))}
        for name, value in {**programs, "persistent_cache_min_compile_time_secs": 0.1}.items():
            jax.config.update(f"jax_{name}", value)
            os.environ[f"JAX_{name.upper()}"] = str(value)  # for the processes that tests start


@pytest.fixture(scope="module")
def quick_to_compile():
    """Where only values are tested."""
    with toy.optimized(False):
        yield


@pytest.fixture(scope="module")
def data():
    """Five clients of 3 to 8 examples."""
    return toy.federation()


@pytest.fixture(scope="session", autouse=True)
def hearing_ctrl_c():
    """Also where the tests were started in the background of a script, which ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def compiled_programs_do_not_pile_up():
    """A process may map only so many pieces of memory (65,530 on Linux), and every compiled program takes some."""
    yield
    jax.clear_caches()
