"""`jit` for programs that run once: compilation is what takes time."""

import equinox as eqx

once = eqx.filter_jit(
    compiler_options={
        "xla_backend_optimization_level": 0,
        "xla_cpu_use_fusion_emitters": False,
    }
)
