"""What a run leaves behind."""

from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_fair.types import Evaluation


class History(NamedTuple):
    """What a run leaves behind, as NumPy arrays: T rounds, of which T_eval were followed by an evaluation."""

    rounds: np.ndarray
    """i64[T_eval]: rounds played when each evaluation was made."""
    scores: dict[str, Evaluation]
    """Per split: accuracy and loss, f32[T_eval, N] each."""
    ids: np.ndarray
    """i32[T, S]: the clients of each round."""
    coef: np.ndarray
    """f32[T, S]: their coefficients; 0 for a client that was not active."""
    active: np.ndarray
    """bool[T, S]: whose update was used."""
    received_loss: np.ndarray | None
    """f32[T, S]: loss of the received model on each client's training set, as reported: a liar's is a lie. NaN for
    a client that was not active, None where the rule does not read it."""
    downloads: np.ndarray
    """i32[T]: clients that were there and were sent the model, to train or to be asked for their loss."""
    evaluations: np.ndarray
    """i32[T]: per-example losses that clients evaluated for the selector."""

    def __repr__(self) -> str:
        scored = ", ".join(f"{name} {list(np.shape(s.accuracy))}" for name, s in self.scores.items())
        return f"History({len(self.ids)} rounds of {self.ids.shape[1]} clients; accuracy and loss on {scored})"

    @property
    def accuracy(self) -> np.ndarray:
        """f32[T_eval, N]: every client's metric (in [0, 1] for accuracy) on the first evaluated split."""
        return np.asarray(next(iter(self.scores.values())).accuracy)

    @property
    def loss(self) -> np.ndarray:
        """f32[T_eval, N]: every client's mean loss on the first evaluated split."""
        return np.asarray(next(iter(self.scores.values())).loss)

    def to_pandas(self) -> Any:
        """A data frame with a row per evaluation, split and client; needs ``pip install 'fedjax-fair[pandas]'``.

        Columns: ``round``, ``split``, ``client``, ``accuracy`` (in [0, 1]) and ``loss``.

        Raises:
          ValueError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise ValueError("to_pandas needs pandas: pip install 'fedjax-fair[pandas]'") from error
        frames = []
        for split, (accuracy, loss) in self.scores.items():
            evaluations, clients = np.shape(accuracy)
            columns = {
                "round": np.repeat(self.rounds, clients),
                "split": split,
                "client": np.tile(np.arange(clients), evaluations),
                "accuracy": np.ravel(accuracy),
                "loss": np.ravel(loss),
            }
            frames.append(pandas.DataFrame(columns))
        return pandas.concat(frames, ignore_index=True)


def join(pieces: list[tuple[np.ndarray, Any]], played: int) -> History:
    """One history of several calls' records; ``played`` rounds came before."""
    gaps = np.concatenate([gap for gap, _ in pieces])
    info = [jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), record[0]) for _, record in pieces]
    rounds = jax.tree.map(lambda *parts: np.concatenate(parts), *info)
    scores = jax.tree.map(lambda *parts: np.concatenate(parts), *[record[1] for _, record in pieces])
    return History(played + np.cumsum(gaps), scores, *rounds)


def after(past: History, now: History) -> History:
    """Two histories, one after the other."""
    return jax.tree.map(lambda *parts: np.concatenate(parts), past, now)
