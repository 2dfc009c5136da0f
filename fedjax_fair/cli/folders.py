"""The folders of results and of checkpoints that a call claims, and the configuration in them."""

import contextlib
import dataclasses
import importlib.util
import itertools
import os
import re
import shlex
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedjax_fair.cli import several
from fedjax_fair.cli.experiment import source_of
from fedjax_fair.cli.resuming import RESUME, digest_of_config
from fedjax_fair.cli.toml import dump_toml
from fedjax_fair.cli.unused import needless, say_unused
from fedjax_fair.engine.files import to_json, write_atomically
from fedjax_fair.engine.grid import label
from fedjax_fair.results.comparison import Comparison
from fedjax_fair.results.folder import check_free, claim_folder, clear, new_folder


def check_checkpoint(keep: Path | None, going_on: bool, command: str) -> None:
    """Look whether a checkpoint's folder holds a run that the call would not go on with.

    Raises:
      ValueError: it does.
    """
    if keep is not None and not going_on and (keep / RESUME).exists():
        raise ValueError(
            f"checkpoint {keep} already holds a run: go on with fedjax-fair {command} --resume "
            f"{shlex.quote(str(keep))}, "
            "or name another folder"
        )


def check_own(folder: Path, config: str) -> None:
    """Look whether results in a folder are of the call that is to go on, by their configurations.

    Raises:
      ValueError: they are of another one.
    """
    if not ((folder / "summary.json").exists() and (folder / "config.toml").exists()):
        return
    there, mine = (
        {name: value for name, value in tomllib.loads(text).items() if name not in ("devices", "plots")}
        for text in ((folder / "config.toml").read_text(), config)
    )
    if there != mine:
        raise ValueError(f"out {folder} holds the results of another call by now: move them away to go on")


@contextlib.contextmanager
def held(folder: Path, name: str = "out") -> Iterator[None]:
    """Create a folder and keep it from other calls; the system lets go of it when the process ends.

    Not on Windows, nor where the file system knows no locks.

    Raises:
      ValueError: another call holds it, or it cannot be created.
    """
    if importlib.util.find_spec("fcntl") is None:
        yield
        return
    # NFS locks only what is open for writing, a file. It stays there, lest calls race for another one.
    marks = ((folder, os.O_RDONLY), (folder / ".held", os.O_CREAT | os.O_WRONLY))
    with contextlib.ExitStack() as kept:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path, how in marks:
                mark = os.open(path, how, 0o666)
                kept.callback(os.close, mark)
                if _locked(mark):
                    break
        except BlockingIOError as error:
            raise ValueError(f"{name} {folder} is in use by another call: wait, or name another folder") from error
        except OSError as error:
            raise ValueError(f"{name} {folder} cannot be written: {error.strerror}") from error
        yield


def _locked(mark: int) -> bool:
    """Lock what is open; False where the system cannot.

    Raises:
      BlockingIOError: another call has locked it.
    """
    import fcntl

    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # by whatever number
        return False
    return True


def claim_folders(
    experiment: Any,
    rules: tuple[str, ...],
    going_on: bool,
    command: str,
    plan: Any,
    during: contextlib.ExitStack,
) -> Path:
    """Create the folder of the results, with the configuration in it and in the checkpoints' folder; both are this
    call's own ``during`` its work."""
    keep = experiment.checkpoint
    if keep is not None:
        check_free(keep, True, "checkpoint")
        during.enter_context(held(keep, "checkpoint"))
        check_checkpoint(keep, going_on, command)  # once nobody else writes there
        claim_folder(keep, overwrite=True, name="checkpoint")
    if experiment.out is None:
        source = re.sub(r"[^\w.,=-]+", "-", source_of(experiment))
        folder = new_folder(Path("runs") / f"{source}-{time.strftime('%Y%m%d-%H%M%S')}")
        during.enter_context(held(folder))
    else:
        check_free(experiment.out, experiment.overwrite)
        if keep is None or not (experiment.out.exists() and experiment.out.samefile(keep)):
            during.enter_context(held(experiment.out))  # before anything in it is touched
        folder = claim_folder(experiment.out, experiment.overwrite)
    if not going_on:
        clear(folder)
    points = plan.points if command == "sweep" else ()
    say_unused(experiment, rules, points, plan.ground.model_name)
    cohort = plan.cohort if isinstance(plan.cohort, int) else experiment.cohort
    kept = dataclasses.replace(
        several.alone_again(experiment),
        out=None,
        overwrite=False,
        quiet=False,
        json=False,
        checkpoint=None,
        cohort=cohort,
    )
    left = needless(experiment, rules, points)
    config = dump_toml(dataclasses.replace(kept, checkpoint_every=None), left)
    if going_on:
        check_own(folder, config)
    if not (going_on and (folder / "summary.json").exists()):  # else it may be headed by what was chosen
        write_atomically(folder / "config.toml", config)
    if keep is not None and not going_on:
        write_atomically(keep / "config.toml", dump_toml(kept, left))
    if keep is not None:  # one that goes on may have got another folder
        told = {"command": command, "out": str(folder.absolute()), "config": digest_of_config(keep)}
        write_atomically(keep / RESUME, to_json(told))
    return folder


def say_what_was_chosen(folder: Path, found: Comparison) -> None:
    """Head ``config.toml``, which holds the settings before tuning, with a comment on those that were chosen."""
    config = folder / "config.toml"
    chosen = "".join(f"#   {rule} {label(point)}\n" for rule, point in found.settings.items())
    said = "# Tuned: the results are those of the settings chosen on validation, in place of what stands below.\n"
    settings = itertools.dropwhile(lambda line: line.startswith("#"), config.read_text().splitlines(keepends=True))
    write_atomically(config, said + chosen + "".join(settings))
