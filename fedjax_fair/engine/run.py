"""Many rounds: nested scans inside, Python only between chunks."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_fair.checks import check_count, check_truth
from fedjax_fair.engine import ahead, watch
from fedjax_fair.engine import checkpoint as checkpoints
from fedjax_fair.engine.devices import as_mesh, replicate
from fedjax_fair.engine.evaluation import scored
from fedjax_fair.engine.history import History, after, join, told
from fedjax_fair.engine.keeping import check_keeping, keeper_of_run
from fedjax_fair.engine.keys import as_key
from fedjax_fair.engine.processes import in_any, processes_of, watched, writes
from fedjax_fair.engine.progress import asked_to_stop, bar
from fedjax_fair.engine.start import own_state
from fedjax_fair.numerics.xla_options import compiled, of_rounds
from fedjax_fair.types import Evaluation, Info, Key, SimState, Simulation


def play(
    state: SimState,
    data: Any,
    *,
    step: Callable,
    evaluate: Callable,
    deploy: Callable,
    evaluations: int,
    every: int,
) -> tuple[SimState, tuple[Info, dict[str, Evaluation]]]:
    """``evaluations`` times ``every`` rounds and an evaluation: a pure function of state and data."""

    def stretch(state: SimState, _: None) -> tuple[SimState, tuple[Info, dict[str, Evaluation]]]:
        state, info = jax.lax.scan(lambda s, _: step(s, data), state, length=every)
        return state, (info, scored(evaluate, deploy, state, data))

    return jax.lax.scan(stretch, state, length=evaluations)


STATIC = ("step", "evaluate", "deploy", "evaluations", "every")


@jax.jit
def _copied(state: SimState) -> SimState:
    """One program where ``tree.map`` alone would run one per leaf."""
    return jax.tree.map(jnp.copy, state)


_play = compiled(play, of_rounds(), static_argnames=STATIC, donate_argnames="state")


def run(
    sim: Simulation,
    key: Key | int | None = None,
    rounds: int = 100,
    *,
    eval_every: int = 10,
    eval_first: bool = False,
    state: SimState | None = None,
    chunk: int | None = None,
    progress: bool | str | None = None,
    on_chunk: Callable[[SimState, History], Any] | None = None,
    checkpoint: str | Path | None = None,
    every: int | None = None,
) -> tuple[SimState, History]:
    """Run ``rounds`` rounds; evaluate every client after each ``eval_every`` of them and after the last.

    The result is the same, bit for bit on one backend, however the run is cut into chunks. So it is whether the
    run is made in one call or continued by another with ``state=``. A second run of the same ``sim``, with the same
    ``rounds`` and ``eval_every``, compiles nothing.

    Where the simulation is on the devices of several processes of ``jax.distributed``, all of them make this call.
    The first one keeps the checkpoint, which it alone has to see, shows progress and warns; ``on_chunk`` is called
    in all, and where it stops one it stops all. Once a process is gone, the others end in a sentence (status 75).

    Args:
      sim: from :func:`fedjax_fair.simulation`.
      key: a JAX key, or a seed; decides initial model, selection and batches.
      rounds: how many rounds to run (more, where ``state`` is given).
      eval_every: rounds between evaluations.
      eval_first: whether the model that the run begins with is evaluated, too: the history's first evaluation is
        then that of round 0 (or of ``state.round``), ahead of any round.
      state: continue from here instead of from ``sim.init(key)``; it stays usable.
      chunk: evaluations per compiled call, between which Python runs; chosen by default so that the call
        returns some ten times, in chunks of one length, or after ``every`` rounds.
      progress: a bar on standard error: True, False, a label for it, or None for "if that is a terminal". Where
        none can be drawn, as in a job's log, a line for each tenth, at most one a minute, unless it is False.
      on_chunk: called with the state and the history so far after every chunk; a true result stops the run.
        :mod:`fedjax_fair.engine.callbacks` has some.
      checkpoint: a folder to keep state and history in, written between chunks. A run that finds its own
        checkpoint there goes on from it, and ends bit for bit where it would have ended uninterrupted; Ctrl-C
        finishes the chunk and saves it first. It may be kept and gone on from by other numbers of devices and
        processes: then results agree to rounding.
      every: rounds between checkpoints, made whole chunks; by default one.

    Returns:
      The final state, and the :class:`History` of these rounds.

    Raises:
      ValueError: a count below 1, neither or both of ``key`` and ``state``, or the devices of some of several
        processes.
      CheckpointError: a ValueError; the checkpoint is of another run or version, which the sentence names, or it
        cannot be written or read.

    >>> data = ff.data.synthetic(n_clients=4, seed=0)
    >>> trainer = ff.local_sgd(optax.sgd(0.1), batch_size=50)
    >>> sim = ff.simulation(ff.models.logistic_regression(), data, aggregator=ff.fedavg(), trainer=trainer)
    >>> state, history = ff.run(sim, 0, rounds=2, eval_every=1)
    >>> history.accuracy.shape  # every evaluation, every client
    (2, 4)
    """
    rounds = check_count("rounds", rounds)
    gap = min(check_count("eval_every", eval_every), rounds)
    chunk = check_keeping(checkpoint, every, gap, chunk, sim)
    check_truth("eval_first", eval_first)
    _check_start(sim, key, state, on_chunk)
    shown, mesh = writes(sim.data), as_mesh((sim.arguments or {}).get("devices", 1))
    place = None if checkpoint is None else checkpoints.place_of(checkpoint)
    pieces: list[tuple[np.ndarray, Any]] = []

    def so_far() -> History:
        now = join(pieces, before + done) if pieces else None
        return past if now is None else now if past is None else after(past, now)  # type: ignore[return-value]

    with (
        asked_to_stop(place is not None) as stop,
        bar(progress if shown else False, rounds) as advance,
        watched(sim.data, place),
    ):
        state = sim.init(as_key(key)) if state is None else own_state(state, sim)
        keeper = None if place is None else keeper_of_run(place, sim, state, rounds, gap, eval_first)
        before, done, past = int(state.round), 0, None
        begun, warned = state.params, False
        if keeper is not None and (found := keeper.load(state, blank(sim))):
            done, state, past = found
            state = replicate(state, mesh)
        state, kept = _copied(state), done  # what is donated must be nobody else's
        advance(done)
        if past is not None and on_chunk is not None:
            (enough,) = in_any(sim.data, bool(on_chunk(_copied(state), told(past, sim))))
            if enough:
                return state, told(past, sim)
        for evaluations, length in chunks(rounds, gap, chunk, done, eval_first and past is None):
            functions = {"step": sim.step, "evaluate": sim.evaluate, "deploy": sim.deploy}
            if ahead.is_known(sim) and length:
                state, record = ahead.play(sim, state, evaluations, length)
            else:
                state, record = _play(state, sim.data, **functions, evaluations=evaluations, every=length)
            pieces.append((np.full(evaluations, length), jax.device_get(record)))
            advance(evaluations * length)
            warned = warned or watch.say(watch.below_zero(sim, join(pieces[-1:], 0)) if shown else [])
            # A copy: the callback may keep the state, but the next chunk's call takes ours apart.
            enough = on_chunk is not None and bool(on_chunk(_copied(state), told(so_far(), sim)))
            enough, stopped = in_any(sim.data, enough, stop())
            if keeper is not None:
                played = int(state.round) - before
                if stopped or enough or played == rounds or played - kept >= (every or 1):
                    keeper.save(played, state, so_far())
                    kept = played
                if stopped:
                    raise KeyboardInterrupt(f"stopped after round {played}, which is kept in {keeper.folder}")
            if enough:
                break
    history = told(so_far(), sim)
    if shown and not warned:  # or there is a reason already
        watch.say(watch.unused(sim, history, not watch.moved(begun, state.params)))
    return state, history


def _check_start(sim: Any, key: Any, state: Any, on_chunk: Any) -> None:
    if (key is None) == (state is None):
        raise ValueError(f"run takes a key or a state to continue from, got {'both' if state else 'neither'}")
    if not isinstance(sim, Simulation):
        raise ValueError(f"sim must be an ff.simulation(...), got {type(sim).__name__}")
    if on_chunk is not None and not callable(on_chunk):
        raise ValueError(f"on_chunk must be a function of the state and the history, got {on_chunk!r}")
    if 1 < (some := len(processes_of(sim.data))) < (count := jax.process_count()):  # the others would not hear
        raise ValueError(f"devices must be of one process or of all {count}, got those of {some}")
    if sim.check is not None:
        sim.check(sim.data)


def blank(sim: Simulation) -> History:
    """A history of the right form, without a round."""
    state, data = jax.eval_shape(sim.init, jax.random.key(0)), jax.eval_shape(lambda: sim.data)
    info = jax.eval_shape(sim.step, state, data)[1]
    scores = jax.eval_shape(lambda s, d: scored(sim.evaluate, sim.deploy, s, d), state, data)
    return jax.tree.map(lambda leaf: np.zeros(0), History(np.zeros(0), scores, *info))


def chunks(
    rounds: int, every: int, chunk: int | None, done: int = 0, first: bool = False
) -> Iterator[tuple[int, int]]:
    """``(evaluations, rounds before each)`` of every compiled call; few distinct ones, since each compiles.

    Of ``rounds`` in all, ``done`` (whole evaluations, or all) were played before. ``first``: an evaluation comes
    ahead of any round.
    """
    total, rest = divmod(rounds, every)
    if chunk is None:
        # A divisor wastes no compilation on a shorter last chunk; a prime count has none, and pays for one.
        wanted = -(-total // 10)
        divisors = [d for d in range(1, wanted + 1) if total % d == 0]
        chunk = divisors[-1] if 5 * divisors[-1] >= wanted else wanted
    check_count("chunk", chunk)
    if first:
        yield 1, 0
    for begun in range(done // every, total, chunk):
        yield min(chunk, total - begun), every
    if rest and done < rounds:
        yield 1, rest
