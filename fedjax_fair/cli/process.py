"""What a command settles for a process of its own: garbage, Ctrl-C, compiled programs, devices of the CPU."""

import _thread
import atexit
import contextlib
import gc
import os
import signal
import sys
import threading
from typing import Any


def collect_seldom() -> None:
    """Look for garbage a hundred times less often, and not at all at the end.

    Nearly all that tracing makes lives as long as the process; looking through it took an eighth of the time of the
    first table.
    """
    gc.freeze()
    gc.set_threshold(70_000, 50, 50)
    atexit.register(gc.freeze)


def hear_interrupts() -> None:
    """Interrupt once more where a Ctrl-C is lost: in a callback of the garbage collector Python only prints it."""
    otherwise = sys.unraisablehook

    def tell(lost: Any) -> None:
        if lost.exc_type is KeyboardInterrupt:
            again = threading.Timer(0.1, interrupt_main)  # once the callback has ended
            again.daemon = True
            again.start()
        else:
            otherwise(lost)

    sys.unraisablehook = tell


def interrupt_main() -> None:
    """A Ctrl-C to the main thread, heard at once also where that waits for a lock."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:  # on Windows, where it is heard when the wait ends
        _thread.interrupt_main()


def flushed() -> bool:
    """Write out what was printed; False where nobody reads on, as in ``list | head``: the rest is thrown away."""
    read = True
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            read = False
    return read


def end_at_once(status: int, last: str) -> None:
    """Print the ``last`` words, on standard error, and end the process without tidying up.

    That takes a second, in which another Ctrl-C would be a traceback, and waits for threads that are still at work.
    One of several processes of a run is not ended: it takes leave of the others.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(BrokenPipeError):  # nobody reads on, see flushed
        print(last, file=sys.stderr)
    flushed()
    jax = sys.modules.get("jax")  # not there where its import was interrupted
    if jax is None or not jax.distributed.is_initialized():
        os._exit(status)


def keep_programs() -> None:
    """Keep compiled programs in the user's cache directory: the same call starts at once the next time.

    ``$JAX_COMPILATION_CACHE_DIR`` names another place, and ``JAX_ENABLE_COMPILATION_CACHE=0`` keeps nothing.
    """
    import jax

    from fedjax_fair.data.cache import directory

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(directory() / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def split_cpu(devices: int) -> None:
    """Make as many devices of the CPU, at most one per core: without an accelerator it is one device otherwise.

    ``$XLA_FLAGS`` or ``$JAX_NUM_CPU_DEVICES`` decide, where they say a number.
    """
    import jax

    flags = os.environ.get("XLA_FLAGS", "")
    if devices < 2 or "xla_force_host_platform_device_count" in flags or "JAX_NUM_CPU_DEVICES" in os.environ:
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jax.config.update("jax_num_cpu_devices", min(devices, cores))
