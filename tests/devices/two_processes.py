"""One of two processes that evaluate a field together; see test_processes.py."""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


def main(number, port, out):
    jax.distributed.initialize(
        f"127.0.0.1:{port}", 2, number, cluster_detection_method="deactivate"
    )
    jax.config.update("jax_enable_x64", True)
    # Late, for they compute something at once.
    from cases import CASES, coefficients

    import sdifp

    found = {}
    with jax.set_mesh(sdifp.training.mesh()):
        for name in ("padded", "subsampled"):
            times = jnp.linspace(0.1, 0.9, 3)
            value = eqx.filter_jit(coefficients)(CASES[name](), times)
            found[name] = np.asarray(value)
    if number == 0:
        np.savez(out, devices=jax.device_count(), **found)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
