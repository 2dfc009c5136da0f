"""The federation's data: every example stored once, and flat tables of who owns which row of the store."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.checks import check_count
from fedjax_fair.data.normalize import Normalizer, check_normalizer, normalize
from fedjax_fair.data.partition import blocks, by_client, dirichlet, iid, log_normal, power_law, shards
from fedjax_fair.data.partition.dealing import Partition
from fedjax_fair.data.split import Split, append_official, check_clients, check_split, split_clients, table
from fedjax_fair.data.store import check_finite, check_labels, examples_of, to_store

__all__ = ["FederatedData", "Normalizer", "Split"]


class FederatedData(NamedTuple):
    """N clients' examples and who owns them; a pytree of arrays, to be passed to compiled functions.

    One client's three splits are disjoint. Two clients may share rows, if the partition says so.
    """

    x: Any
    """[E, ...], or a pytree of such arrays: the example store, each example once."""
    y: Array
    """[E] or [E, ...]: labels (i32) or targets."""
    train: Split
    validation: Split
    test: Split
    normalizer: Normalizer | None = None

    def __repr__(self) -> str:
        counts = "/".join(str(split.rows.shape[0]) for split in (self.train, self.validation, self.test))
        shapes = ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(self.x))
        return f"FederatedData({self.n_clients} clients, {counts} train/validation/test examples, x {shapes})"

    @property
    def n_clients(self) -> int:
        """N."""
        return self.train.size.shape[0]

    @property
    def sizes(self) -> np.ndarray:
        """i32[N]: training examples of each client, as a NumPy array."""
        return np.asarray(self.train.size)

    def take(self, rows: Array) -> tuple[Any, Array]:
        """``rows i32[...] -> (x [..., *example], y [...])``: normalised model inputs, and labels.

        Pure gathers: it may be traced, mapped and differentiated. Rows beyond the store are clamped to it.
        """
        x = jax.tree.map(lambda leaf: jnp.take(leaf, rows, axis=0, mode="clip"), self.x)
        y = jnp.take(self.y, rows, axis=0, mode="clip")
        return (x if self.normalizer is None else normalize(x, self.normalizer)), y

    @staticmethod
    def from_arrays(
        x: Any,
        y: Any,
        *,
        client_id: Iterable[Hashable] | None = None,
        partition: Partition | None = None,
        seed: int = 0,
        split: Sequence[float] | None = None,
        test: tuple[Any, Any] | None = None,
        normalizer: Normalizer | Literal["auto"] | None = "auto",
    ) -> "FederatedData":
        """Deal arrays to clients, and split every client's examples into train, validation and test.

        A client's examples are shuffled with an rng derived from ``seed``; of its n, validation and test get
        ``max(1, round(share * n))`` each where their share is positive, and training the rest, at least 1.
        A row that several clients hold falls into one split for all of them, and theirs may then miss these sizes.

        Official test examples are dealt to the clients class by class, in proportion to the number of
        training examples of the class that each client holds (largest remainders, ties at random). Each goes
        to one client; only classes that no client trains on are left out.

        Integers are stored as int32 (8 and 16 bits as they are), floats as float32 (as float64 where given
        so and ``jax_enable_x64`` is set).

        Args:
          x: [E, ...] examples, or a pytree of arrays with the same leading length.
          y: [E] class labels, integers from 0; or [E, ...] other targets.
          client_id: one label per example, the clients in sorted order of the labels; or
          partition: who owns what, such as ``partition.iid(100)``. Exactly one of the two.
          seed: of the partition and of the splits.
          split: shares of (train, validation, test), summing to 1 within 1e-6; by default (.8, .1, .1), and
            (.9, .1, 0) with ``test``.
          test: ``(x_test, y_test)``, official test examples; the test share of ``split`` must then be 0.
          normalizer: a :class:`Normalizer`, None, or "auto": 1/255 for one uint8 array, else none.

        Raises: ValueError, in one sentence, for arrays that do not fit together, features that are NaN or infinite
        as they would be stored (1e300 is, in float32), NaN or negative labels, clients without an example or with
        fewer than there are positive shares, and official test examples that do not reach every client.
        """
        if (client_id is None) == (partition is None):
            given = "neither" if partition is None else "both"
            raise ValueError(f"give exactly one of client_id and partition, got {given}")
        check_count("seed", seed, low=0)
        shares = check_split(split, official=test is not None)
        x, y = examples_of(x, "x"), check_labels(y, "y")
        n_examples = len(y)
        check_finite(x, n_examples, "x", "y")
        chosen = partition if partition is not None else by_client(client_id)  # type: ignore[arg-type]
        if not callable(chosen):
            raise ValueError(f"partition must be a function (labels, seed) -> rows of every client, got {chosen!r}")
        if chosen in (iid, power_law, log_normal, by_client, dirichlet, shards, blocks):
            raise ValueError(
                f"partition must be a partition such as ff.partition.iid(10), got the factory {chosen.__name__}: "
                "call it"
            )
        clients = check_clients([np.asarray(mine) for mine in chosen(y, seed)], n_examples)
        rng = np.random.default_rng((seed, 1))  # not the partition's own stream
        parts = split_clients(clients, shares, rng)
        if test is not None:
            x, y, dealt = append_official(x, y, test, parts[0], len(clients), rng)
            parts = [*parts[:2], dealt]
        train, validation, held_out = (table(rows, owner, len(clients)) for rows, owner in parts)
        store = jax.tree.map(to_store, x)
        return FederatedData(store, jnp.array(y), train, validation, held_out, check_normalizer(normalizer, store))
