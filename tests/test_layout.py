"""The shape of the package: imports run one way, and the lock names versions only."""

import ast
import importlib
import re
import subprocess
import sys
from inspect import ismodule
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "sdifp"

# Each part and the parts that it may import. A part that is not here may not exist.
MAY_IMPORT = {
    "_checks": {"_core"},
    "_files": set(),
    "_nearest": set(),
    "invariants": set(),
    "_core": {"_files", "invariants"},
    "_domain": set(),
    "_mesh": set(),
    "_timing": set(),
    "quadrature": {"_checks", "_domain", "_mesh"},
    "correction": {"_checks", "_core"},
    "field": {
        *("_checks", "_core", "_domain", "_files", "_mesh", "quadrature"),
        *("correction", "invariants"),
    },
    "torch": {"_core", "_domain", "field", "quadrature", "invariants"},
    "taylor": set(),
    "operators": {
        *("_checks", "_mesh", "correction", "field", "taylor", "quadrature"),
        "invariants",
    },
    "estimators": {
        *("_checks", "field", "correction", "_timing", "operators", "taylor"),
    },
    "problems": {
        *("_checks", "_domain", "field", "invariants", "operators", "quadrature"),
    },
    "training": {
        *("_checks", "_domain", "_mesh", "correction", "field", "invariants"),
        *("quadrature", "operators", "estimators", "problems"),
    },
    "_folder": {"_files"},
    # Its fields and names are read off these.
    "_config": {
        *("_folder", "_nearest", "field", "quadrature", "taylor", "operators"),
        *("estimators", "problems", "training"),
    },
    "runs": {
        *("_config", "_folder", "field", "_mesh", "invariants", "quadrature"),
        *("problems", "training", "__version__"),
    },
    "_report": {"_folder"},
    "_cli": {
        *("_config", "_folder", "_mesh", "_nearest", "_report", "runs", "training"),
        *("_public", "__version__"),
    },
    "__main__": {"_cli"},
    "__init__": {"_public"},
    "_public": {
        *("_domain", "correction", "field", "_config", "runs"),
        *("invariants", "quadrature", "taylor", "operators", "estimators"),
        *("problems", "training"),
    },
}


def imported(path):
    """What one file imports of the package, as tuples such as (sdifp, _field, _x)."""
    package = path.relative_to(SOURCE.parent).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            names = (*base, *(node.module.split(".") if node.module else ()))
            targets = [(*names, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            targets = [tuple(alias.name.split(".")) for alias in node.names]
        else:
            continue
        yield from (t for t in targets if t[0] == "sdifp" and len(t) > 1)


def part_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE))
)
def test_imports_follow_the_design(path):
    part = part_of(path)
    assert part in MAY_IMPORT, f"say in MAY_IMPORT what {part} may import"
    targets = list(imported(path))
    extra = {t[1] for t in targets} - {part} - MAY_IMPORT[part]
    assert not extra, f"{part} may not import {sorted(extra)}"
    private = [".".join(t) for t in targets if is_private(t, part)]
    assert not private, f"import it from the package itself: {private}"


def is_private(target, part):
    """Whether this is a private module, or name, of another part."""
    return target[1] != part and any(name.startswith("_") for name in target[2:])


def test_the_library_does_not_import_from_the_studies():
    for path in SOURCE.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names]
        names += [
            n.module or ""
            for n in nodes
            if isinstance(n, ast.ImportFrom) and not n.level
        ]
        assert "studies" not in {name.partition(".")[0] for name in names}, path


def test_the_walk_sees_a_back_edge(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path / "sdifp")
    file = tmp_path / "sdifp" / "correction" / "_x.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "from ..quadrature._rule import chunk\nfrom ._y import z\n"
        "import sdifp.field\nfrom .. import _mesh\nfrom ..operators import _batch\n"
    )
    found = list(imported(file))
    assert {t[1] for t in found} == {
        *("quadrature", "correction", "field", "_mesh", "operators"),
    }
    private = [t[1:] for t in found if is_private(t, "correction")]
    assert private == [("quadrature", "_rule", "chunk"), ("operators", "_batch")]


def test_no_part_imports_itself_through_others():
    def reachable(part, seen=()):
        for other in MAY_IMPORT[part] - {"__version__"}:
            assert other not in seen, f"cycle through {part} and {other}"
            reachable(other, (*seen, other))

    for part in MAY_IMPORT:
        reachable(part, (part,))


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-torch.lock"])
def test_lock_names_packages_and_exact_versions_only(lock):
    lines = (ROOT / lock).read_text().splitlines()
    assert len(lines) > 10
    for line in lines:
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.+!-]+", line), line


def test_import_prints_nothing_and_leaves_the_configuration_alone():
    code = (
        "import jax, sdifp; "
        "assert not jax.config.jax_enable_x64; "
        "assert sdifp.__version__"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


NAMESPACES = [
    *("correction", "estimators", "field", "invariants", "operators", "problems"),
    *("quadrature", "runs", "taylor", "training"),
]


def public_names(namespace):
    """The names of a namespace of the package that are meant for users."""
    module = importlib.import_module(f"sdifp.{namespace}")
    own = [n for n, v in vars(module).items() if n[0] != "_" and not ismodule(v)]
    return getattr(module, "__all__", own)


def test_public_names_are_documented_in_the_reference():
    import sdifp

    pages = "".join(p.read_text() for p in (ROOT / "docs" / "api").glob("*.md"))
    documented = set(re.findall(r"^::: sdifp\.(\S+)$", pages, re.M))
    inside = {f"{space}.{n}" for space in NAMESPACES for n in public_names(space)}
    assert inside - documented == set()
    # The top has the sub-packages, and 30 names at the most: `Box` and some of theirs.
    # (The hook that checks annotations adds a name of its own.)
    names = set(dir(sdifp)) - {"jaxtyping"}
    top = names - set(NAMESPACES)
    assert top - {name.split(".")[1] for name in inside} == {"Box"}
    assert "Box" in documented
    assert len(top) <= 30
