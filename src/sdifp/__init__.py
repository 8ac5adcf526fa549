"""sdifp: exact global conservation for neural PDE solvers.

The public names are those of `_public`. They are loaded with the first one that is
used, for that takes JAX: the command line answers before.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from ._public import *  # noqa: F403
else:
    _PACKAGES = {
        *("correction", "estimators", "field", "invariants", "operators", "problems"),
        *("quadrature", "runs", "taylor", "training"),
    }

    def __getattr__(name: str) -> Any:
        import importlib

        if name in _PACKAGES:
            return importlib.import_module(f".{name}", __name__)
        if not name.startswith("_"):
            public = importlib.import_module("._public", __name__)
            if hasattr(public, name):
                return getattr(public, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        import importlib

        public = importlib.import_module("._public", __name__)
        return sorted(n for n in vars(public) if n[:1] != "_")
