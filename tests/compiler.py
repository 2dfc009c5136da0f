"""How XLA compiles the tests' programs: thousands of small ones, of which each runs once."""

import os
import subprocess
import sys

QUICK = (
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_parallel_codegen_split_count=1",  # the second core has tests of its own
    "--xla_cpu_use_fusion_emitters=false",
)


def flags() -> str:
    """``$XLA_FLAGS`` where it is set (``XLA_FLAGS= pytest`` tests the programs that users run), else quick ones.

    Such flags come and go with XLA's versions, and one that it does not know ends the process: so they are tried
    in another one.
    """
    if "XLA_FLAGS" in os.environ:
        return os.environ["XLA_FLAGS"]
    tried = [sys.executable, "-c", "import jax; jax.devices()"]
    for many in range(len(QUICK), 0, -1):  # the last is the one that jaxlib 0.11 took away
        known = " ".join(QUICK[:many])
        environment = os.environ | {"XLA_FLAGS": known}
        if subprocess.run(tried, env=environment, capture_output=True, check=False).returncode == 0:
            return known
    return ""
