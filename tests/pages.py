"""Code on the pages of the documentation."""

from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def code_under(page, heading):
    """The first block of Python under a heading of a page."""
    text = (DOCS / page).read_text().split(f"## {heading}\n")[1]
    return text.split("```python\n")[1].split("```")[0]
