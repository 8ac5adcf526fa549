"""The studies by name: every file here whose name does not begin with `_`."""

import ast
import difflib
import importlib
from pathlib import Path

from ._study import Study


def study_names() -> dict[str, str]:
    """Each study with the first line of its docstring; imports none of them."""
    found = {}
    for file in sorted(Path(__file__).parent.glob("[a-z]*.py")):
        text = ast.get_docstring(ast.parse(file.read_text())) or ""
        found[file.stem.replace("_", "-")] = text.partition("\n\n")[0]
    return {name: " ".join(text.split()) for name, text in found.items()}


def load_study(name: str) -> Study:
    """The study of a name. Raises `ValueError` if there is none."""
    known = study_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else "python -m studies lists them"
        raise ValueError(f"unknown study {name!r}; {hint}")
    module = importlib.import_module(f".{name.replace('-', '_')}", __package__)
    found: Study = module.STUDY
    return found
