"""Who owns which example: plain functions ``(labels, seed) -> rows of every client``.

A factory takes what describes the federation and checks it at once; what it returns is applied to the labels
by :func:`fedjax_fair.data.load` or :meth:`FederatedData.from_arrays`, or by hand::

    clients = partition.shards(n_clients=100)(labels, seed=0)
    partition.describe(clients, labels)

Every partition here is finite, a pure function of ``(labels, seed)``, and gives each example to exactly one
client, with the one exception of ``blocks(..., overlap=True)``. Your own is any function of that form.
"""

from fedjax_fair.data.partition.dealing import Partition
from fedjax_fair.data.partition.description import describe
from fedjax_fair.data.partition.dirichlet import dirichlet
from fedjax_fair.data.partition.label_skew import blocks, shards
from fedjax_fair.data.partition.natural import by_client
from fedjax_fair.data.partition.size_skew import iid, log_normal, power_law

__all__ = [
    "Partition",
    "blocks",
    "by_client",
    "describe",
    "dirichlet",
    "iid",
    "log_normal",
    "power_law",
    "shards",
]
