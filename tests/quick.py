"""Tests that are quick: their programs, which mostly run once, and their cases."""

import equinox as eqx
import pytest

_OPTIONS = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    # Threads share the work of one compilation, which costs more than it gains here.
    "xla_cpu_parallel_codegen_split_count": 1,
}
# The same as the value of XLA_FLAGS.
FLAGS = " ".join(f"--{name}={value}".lower() for name, value in _OPTIONS.items())

once = eqx.filter_jit(compiler_options=_OPTIONS)
# As users compile: for tests that compare bits of one program with those of another.
optimised = eqx.filter_jit(
    compiler_options={
        "xla_backend_optimization_level": 3,
        "xla_cpu_use_fusion_emitters": True,
    }
)


def only(cases, *names):
    """All cases, of which `make test` runs those named and `make validate` the rest."""
    return [
        case if case in names else pytest.param(case, marks=pytest.mark.cases)
        for case in cases
    ]
