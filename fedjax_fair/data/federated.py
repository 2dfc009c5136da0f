"""The federation's data: every example stored once, and flat tables of who owns which row of the store."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.checks import check_choice, check_count, check_takes
from fedjax_fair.data.groups import groups_of
from fedjax_fair.data.host_store import Handed, HostStore, forms_of, host_store, opened
from fedjax_fair.data.names import Names, Words, words_of
from fedjax_fair.data.normalize import Normalizer, Normalizers, check_normalizer, normalize
from fedjax_fair.data.official import append_official
from fedjax_fair.data.partition import blocks, by_client, dirichlet, iid, log_normal, power_law, shards
from fedjax_fair.data.partition.dealing import Partition
from fedjax_fair.data.partition.natural import Natural
from fedjax_fair.data.split import Split, check_clients, check_split, split_clients, table
from fedjax_fair.data.store import (
    check_finite,
    check_labels,
    check_whole_numbers,
    device_copy,
    examples_of,
    to_store,
)
from fedjax_fair.numerics.table_rows import rows_of

__all__ = ["FederatedData", "Names", "Normalizer", "Split"]

Place = Literal["device", "host"]


class FederatedData(NamedTuple):
    """N clients' examples and who owns them; a pytree of arrays, to be passed to compiled functions.

    One client's three splits are disjoint. Two clients may share rows, if the partition says so.
    """

    x: Any
    """[E, ...], or a pytree of such arrays: the example store, each example once. With ``store="host"`` what reads
    them, a pytree without leaves."""
    y: Array
    """[E] or [E, ...]: labels (i32) or targets."""
    train: Split
    validation: Split
    test: Split
    normalizer: Normalizers | None = None
    """Of ``x``; a tuple, of its leaves."""
    names: Names | None = None
    """What clients, classes and columns are called, where they have names."""
    ids: Array | None = None
    """i32[S]: of a round's cohort, brought to the device alone, which clients its S are; None for all of them."""

    def __repr__(self) -> str:
        counts = "/".join(str(split.rows.shape[0]) for split in (self.train, self.validation, self.test))
        shapes = ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(forms_of(self.x)))
        return f"FederatedData({self.n_clients} clients, {counts} train/validation/test examples, x {shapes})"

    @property
    def n_clients(self) -> int:
        """N."""
        return self.train.size.shape[0]

    @property
    def sizes(self) -> np.ndarray:
        """i32[N]: training examples of each client, as a NumPy array."""
        return np.asarray(self.train.size)

    @property
    def clients(self) -> Words | None:
        """[N]: the clients' names, where they have any: words, or numbers other than 0, ..., N - 1."""
        return None if self.names is None else self.names.clients

    @property
    def groups(self) -> Words | None:
        """[N]: the group that each client is of, where there are groups."""
        return None if self.names is None else self.names.groups

    def take(self, rows: Array) -> tuple[Any, Array]:
        """``rows i32[...] -> (x [..., *example], y [...])``: normalised model inputs, and labels.

        Pure gathers: it may be traced, mapped and differentiated. Rows beyond the store are clamped to it. With
        ``store="host"`` every call reads them from there.
        """
        if isinstance(self.x, HostStore | Handed):
            x = (self.x if isinstance(self.x, HostStore) else self.x.store).take(jnp.asarray(rows))
        else:
            x = jax.tree.map(lambda leaf: rows_of(leaf, rows), self.x)
        y = rows_of(self.y, rows)
        return (x if self.normalizer is None else normalize(x, self.normalizer)), y

    def form(self, count: int) -> tuple[Any, Any]:
        """The shapes and types of so many examples, as :meth:`take` gives them."""
        rows = jax.ShapeDtypeStruct((count,), jnp.int32)
        if isinstance(self.x, HostStore | Handed):  # what JAX traces once and for all would keep it alive
            return jax.eval_shape(lambda rows: self.take(rows), rows)
        return jax.eval_shape(FederatedData.take, self._replace(names=None), rows)

    def places(self, ids: Array) -> Array:
        """Where the tables have these clients: at their numbers, or at those of the cohort's slots."""
        if self.ids is None:
            return ids
        mine = self.ids.reshape(*[1] * ids.ndim, -1) == ids[..., None]
        return mine.argmax(-1).astype(jnp.int32)

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
        test_client_id: Iterable[Hashable] | None = None,
        group: Any = None,
        normalizer: Normalizer | Literal["auto"] | None = "auto",
        store: Place = "device",
    ) -> "FederatedData":
        """Deal arrays to clients, and split every client's examples into train, validation and test.

        A client's examples are shuffled with an rng derived from ``seed``; of its n, validation and test get
        ``max(1, round(share * n))`` each where their share is positive, and training the rest, at least 1.
        A row that several clients hold falls into one split for all of them, and theirs may then miss these sizes.

        Official test examples go to the clients that ``test_client_id`` names. Without it they are dealt class by
        class, in proportion to the number of training examples of the class that each client holds (largest
        remainders, ties at random). Each goes to one client; only classes that no client trains on are left out.
        Natural clients (``client_id``) that share a class may then get test examples of one another: a UserWarning.

        Integers are stored as int32 (8 and 16 bits as they are), floats as float32 (16 bits as they are; as float64
        where given so and ``jax_enable_x64`` is set). They reach the model as they are stored, but for what
        ``normalizer`` says: a model that adds up bytes overflows at 255. "auto" scales images alone, known by their
        shape: uint8 [E, H, W], or [E, H, W, C] with C of 1, 3 or 4, of at least 2 x 2 pixels, also inside a pytree,
        are brought to [0, 1] as float32 (those of 0 and 1 are there already). All other bytes, such as one-hot
        codes, counts and tokens, stay as they are. Where they reach 128, flattened images and tokens look alike,
        and either taken for the other trains on numbers 255 times too large or too small: that is refused.

        Args:
          x: [E, ...] examples, or a pytree of arrays with the same leading length; or the path of a file ``.npy``,
            which is mapped into memory.
          y: [E] class labels, integers from 0; or [E, ...] other targets.
          client_id: one label per example, the clients in sorted order of the labels, which are kept as
            ``data.clients``; or
          partition: who owns what, such as ``partition.iid(100)``. Exactly one of the two.
          seed: of the partition and of the splits.
          split: shares of (train, validation, test), summing to 1 within 1e-6; by default (.8, .1, .1), and
            (.9, .1, 0) with ``test``.
          test: ``(x_test, y_test)``, official test examples, the first as ``x``; the test share of ``split`` must
            then be 0.
          test_client_id: one label per test example, of those in ``client_id``. A client without a test example
            has no test accuracy: it is NaN.
          group: what every client is one of, such as a country's hospitals: one entry per example, or a mapping of
            the clients' names; kept as ``data.groups``, and in histories' tables beside the clients.
          normalizer: a :class:`Normalizer` for one array, None for what is stored, or "auto".
          store: "device" copies the examples to JAX's device. "host" leaves them where they are, in memory or in a
            mapped file, copies nothing, and reads a round's examples as they are needed: the arrays must not change
            while they are in use. Results are the same; labels and tables are on the device either way.

        Raises: ValueError, in one sentence, for another ``store`` than these, a file that cannot be read, arrays
        that do not fit together, features that are NaN or infinite
        as they would be stored (1e300 is, in float32), NaN or negative labels, clients without an example or with
        fewer than there are positive shares, test examples dealt by class that do not reach every client,
        ``test_client_id`` with names that nobody trains under, beside ``partition``, or without ``test``, ``group``
        without natural clients, or several of a client, and bytes of 128 or more that are no images, without a
        ``normalizer``.

        >>> x, y = np.zeros((20, 3), np.float32), np.arange(20) % 2
        >>> data = ff.FederatedData.from_arrays(x, y, client_id=["north"] * 8 + ["south"] * 12)
        >>> data.clients, data.sizes.tolist()
        (('north', 'south'), [6, 10])
        """
        chosen = who_owns(client_id, partition)
        if test_client_id is not None and (test is None or client_id is None):
            lacking = "test=(x_test, y_test)" if test is None else "client_id="
            raise ValueError(
                f"test_client_id says whose the test examples are: it needs {lacking} beside it, got none"
            )
        check_count("seed", seed, low=0)
        check_choice("store", store, get_args(Place))
        shares = check_split(split, official=test is not None)
        x, y = examples_of(opened(x, "x"), "x"), check_labels(y, "y")
        n_examples = len(y)
        check_finite(x, n_examples, "x", "y")
        if isinstance(chosen, Natural):
            rows, size = chosen.flat(y)
        else:
            owned = chosen(y, seed)
            if not isinstance(owned, Iterable):
                raise ValueError(f"partition must return the rows of every client, got {type(owned).__name__}")
            try:
                listed = [np.asarray(mine) for mine in owned]
            except ValueError:
                raise ValueError("partition must return rows for every client, got lists in a list") from None
            rows, size = check_clients(listed, n_examples)
        rng = np.random.default_rng((seed, 1))  # not the partition's own stream
        words = words_of(chosen.names) if isinstance(chosen, Natural) else None
        groups = None if group is None else groups_of(group, chosen)
        parts = split_clients(rows, size, shares, rng, words)
        stores = [x]
        if test is not None:
            x_test, y, dealt = append_official(x, y, test, parts[0], len(size), chosen, test_client_id, rng)
            stores, parts = [x, x_test], [*parts[:2], dealt]
        with jax.ensure_compile_time_eval():  # also where the caller is traced, as what ff.sweep builds is
            train, validation, held_out = (table(mine, owner, len(size)) for mine, owner in parts)
            scales = check_normalizer(normalizer, *stores)
            for each in jax.tree.leaves(stores):
                check_whole_numbers(each)
            whole = host_store(stores) if store == "host" else jax.tree.map(to_store, *stores)
            names = None if words is None and groups is None else Names(words, groups=groups)
            return FederatedData(whole, device_copy(y), train, validation, held_out, scales, names)


def who_owns(client_id: Iterable[Hashable] | None, partition: Partition | None) -> Partition | Natural:
    """The one of the two that is given, as a partition."""
    if (client_id is None) == (partition is None):
        given = "neither" if partition is None else "both"
        raise ValueError(f"give exactly one of client_id and partition, got {given}")
    if partition is None:
        return by_client(client_id)  # type: ignore[arg-type]
    if not callable(partition):
        raise ValueError(f"partition must be a function (labels, seed) -> rows of every client, got {partition!r}")
    if partition in (iid, power_law, log_normal, by_client, dirichlet, shards, blocks):
        raise ValueError(
            f"partition must be a partition such as ff.partition.iid(10), got the factory {partition.__name__}: "
            "call it"
        )
    check_takes("partition", partition, "labels", "seed")
    return partition
