"""A trained policy as one file."""

import io
import json
import zipfile
from importlib import metadata
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from fedjax_fair.aggregators.policy import STATES, WEIGHTS, Policy, check_policy
from fedjax_fair.checks import check_choice
from fedjax_fair.engine.checkpoint import CheckpointError
from fedjax_fair.engine.files import write_atomically


def save_policy(policy: Policy, path: str | Path) -> Path:
    """Write a policy to one ``.npz`` file, whole or not at all; :func:`load_policy` reads it, bit for bit.

    Args:
      policy: as :func:`train_policy` returned it.
      path: the file; the folder that it lies in is made.

    Returns:
      the path.

    Raises:
      ValueError: ``policy`` is none, of another network, or its numbers are not finite, or bfloat16.
      CheckpointError: a ValueError; the file cannot be written.
    """
    check_policy(policy)
    arrays = {name: np.asarray(leaf) for name, leaf in traverse_util.flatten_dict(policy.params, sep="/").items()}
    if odd := sorted({str(leaf.dtype) for leaf in arrays.values() if leaf.dtype.kind != "f"}):
        raise ValueError(f"policy must have parameters of float16, float32 or float64, got {', '.join(odd)}")
    if not all(np.isfinite(leaf).all() for leaf in arrays.values()):
        raise ValueError("policy must have finite parameters, got some that are not")
    about = {"state": policy.state, "weights": policy.weights, "fedjax-fair": metadata.version("fedjax-fair")}
    if policy.rewards is not None:
        arrays["rewards"] = np.asarray(policy.rewards, np.float64)
    buffer = io.BytesIO()
    np.savez(buffer, **{"about": np.array(json.dumps(about)), **arrays})  # type: ignore[arg-type]
    place = Path(path).expanduser()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, buffer.getvalue())
    except OSError as error:
        raise CheckpointError(f"policy {path} cannot be written: {error.strerror or error}") from error
    return place


def load_policy(path: str | Path) -> Policy:
    """The policy that :func:`save_policy` wrote, for ``ff.pg_ffl(policy=...)``.

    Raises:
      CheckpointError: a ValueError; there is no such file, it holds no policy, or one of float64 and JAX has none.
    """
    try:
        with np.load(io.BytesIO(Path(path).expanduser().read_bytes())) as kept:
            arrays = {name: kept[name] for name in kept.files}
        about = json.loads(str(arrays.pop("about")))
        state = check_choice("state", about["state"], STATES)
        weights = check_choice("weights", about["weights"], WEIGHTS)
    except OSError as error:
        raise CheckpointError(f"policy {path} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"policy {path} cannot be read ({type(error).__name__}: {error})") from error
    rewards = arrays.pop("rewards", None)
    if not arrays:
        raise CheckpointError(f"policy {path} cannot be read: it holds no parameters")
    if not jax.config.read("jax_enable_x64") and any(leaf.dtype == np.float64 for leaf in arrays.values()):
        raise CheckpointError(f"policy {path} is of float64, which needs jax.config.update('jax_enable_x64', True)")
    params = jax.tree.map(jnp.asarray, traverse_util.unflatten_dict(arrays, sep="/"))
    policy = Policy(params, state, weights, rewards)
    try:
        check_policy(policy)
    except ValueError as error:
        raise CheckpointError(f"policy {path} cannot be read: {error}") from error
    return policy
