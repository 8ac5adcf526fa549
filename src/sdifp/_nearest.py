"""The name that may have been meant. Needs the standard library alone."""

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str:
    """A sentence with the nearest of some names, or with all of them."""
    names = list(names)
    simple = {_simple(n): n for n in names}
    close = difflib.get_close_matches(_simple(name), simple, 1, 0.5)
    if close:
        return f"did you mean {simple[close[0]]}?"
    return f"there are {', '.join(names)}"


def match(name: str, names: Iterable[str]) -> str | None:
    """The one of some names that is meant, whatever its case and hyphens."""
    return next((n for n in names if _simple(n) == _simple(name)), None)


def _simple(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
