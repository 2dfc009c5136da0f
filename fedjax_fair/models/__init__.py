"""Models: three stock ones, and one door for any flax module or ``(init, apply)`` pair of the user's."""

from fedjax_fair.models.adapters import as_model
from fedjax_fair.models.flax_modules import Model
from fedjax_fair.models.networks import PatchConv
from fedjax_fair.models.pooling import max_pool_2x2
from fedjax_fair.models.stock import cnn, logistic_regression, mlp

__all__ = ["Model", "PatchConv", "as_model", "cnn", "logistic_regression", "max_pool_2x2", "mlp"]
