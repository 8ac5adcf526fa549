"""The shape of the package: imports run one way, and the lock names versions only."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "sdifp"

# Each part and the parts that it may import. A part that is not here may not exist.
MAY_IMPORT = {
    "_checks": set(),
    "_files": set(),
    "_core": {"_files"},
    "_domain": set(),
    "_mesh": set(),
    "_timing": set(),
    "_quadrature": {"_checks", "_domain", "_mesh"},
    "_projection": {"_checks", "_core"},
    "_field": {
        *("_checks", "_core", "_domain", "_files", "_mesh", "_quadrature"),
        "_projection",
    },
    "torch": {"_core", "_domain", "_field", "_quadrature"},
    "_operators": {"_checks", "_mesh", "_projection", "_field", "_timing"},
    "_networks": {"_checks", "_domain"},
    "_optimisers": {"_checks", "_mesh"},
    "problems": {
        *("_checks", "_domain", "_quadrature", "_field", "_operators"),
        *("_networks", "_optimisers"),
    },
    "_methods": {"_checks", "_quadrature", "_field", "_operators", "problems"},
    "_config": set(),
    "_folder": {"_config", "_files"},
    "_training": {
        *("_checks", "_mesh", "_quadrature", "_field", "_operators"),
        *("_networks", "problems", "_methods"),
    },
    "_run": {
        *("_config", "_folder", "_field", "_mesh", "_methods", "_networks"),
        *("_operators",),
        *("_optimisers", "_quadrature", "_training", "problems", "__version__"),
    },
    "_report": {"_config", "_folder"},
    "_reproduce": {
        *("_config", "_folder", "_domain", "_quadrature", "_projection", "_field"),
        *("_operators", "_networks", "_optimisers", "problems", "_methods"),
        *("_training", "_report", "_timing"),
    },
    "_cli": {
        *("_config", "_folder", "_mesh", "_report", "_run", "_training", "_public"),
        *("_reproduce", "__version__"),
    },
    "__main__": {"_cli"},
    "__init__": {"_public"},
    "_public": {
        *("_domain", "_quadrature", "_projection", "_field", "_operators"),
        *("_networks", "_optimisers", "problems", "_methods", "_training"),
        *("_config", "_run", "_mesh"),
    },
}


def parts_imported(path):
    """The parts of the package that one file imports, its own one left out."""
    package = path.relative_to(SOURCE.parent).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            names = base + (node.module.split(".") if node.module else [])
            targets = (
                [names] if len(names) > 1 else [[*names, a.name] for a in node.names]
            )
        elif isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        else:
            continue
        for target in targets:
            if target[0] == "sdifp" and len(target) > 1:
                yield target[1]


def part_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE))
)
def test_imports_follow_the_design(path):
    part = part_of(path)
    assert part in MAY_IMPORT, f"say in MAY_IMPORT what {part} may import"
    extra = set(parts_imported(path)) - {part} - MAY_IMPORT[part]
    assert not extra, f"{part} may not import {sorted(extra)}"


def test_the_walk_sees_a_back_edge(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path / "sdifp")
    file = tmp_path / "sdifp" / "_projection" / "_x.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "from .._quadrature import sobol\nfrom ._y import z\nimport sdifp._field\n"
    )
    assert set(parts_imported(file)) == {"_quadrature", "_projection", "_field"}


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


def test_public_names_are_documented_in_the_reference():
    import sdifp

    pages = "".join(p.read_text() for p in (ROOT / "docs" / "api").glob("*.md"))
    names = [
        name
        for name in dir(sdifp)
        if getattr(getattr(sdifp, name), "__module__", "").startswith("sdifp.")
    ]
    assert "project" in names
    missing = [n for n in names if f"::: sdifp.{n}\n" not in pages]
    assert not missing
