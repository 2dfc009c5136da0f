"""Shared by all tests: strict rank promotion, and one cache directory for decoded images."""

import os

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="session", autouse=True)
def cache_directory(tmp_path_factory):
    """Decode each dataset once a session, away from the user's own cache."""
    if "FEDJAX_FAIR_CACHE" not in os.environ:
        os.environ["FEDJAX_FAIR_CACHE"] = str(tmp_path_factory.mktemp("cache"))
