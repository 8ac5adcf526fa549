"""report.html: one page that needs nothing but itself."""

import base64
import io
import re
import shlex
from collections.abc import Collection
from importlib import resources
from pathlib import Path

import jinja2
import markupsafe

from .._folder import Saved, clock, shown, write_whole
from ._figures import groups
from ._tables import certificate_table, integrals_table, measured_table
from ._terms import METHODS, Glossary
from ._values import (
    functional_value,
    in_words,
    is_steady,
    l2_errors,
    measured,
    measured_value,
    prescribed,
    worst_drift,
    worst_error,
)

# Of the pictures, which are shown smaller than their size on most screens.
_DPI = 200


def write_report(folder: str | Path) -> Path:
    """Draw the report of a run from what it saved; returns the page."""
    saved = Saved.read(folder)
    files: dict[str, bytes] = {}
    # In the order of the page, so that each term is explained where it is used first.
    glossary = Glossary(saved)
    key_figures = _key_figures(saved)
    says, advice = verdict(saved, with_advice=False), _advice(saved)
    top = {
        "verdict_terms": glossary.explain(says, advice),
        "key_terms": glossary.explain(*(name for name, _ in key_figures)),
    }
    integrals = integrals_table(saved) if is_steady(saved) else None
    if integrals is not None:
        top["integrals_terms"] = glossary.explain(*integrals.head)
    drawn = []
    for group in groups(saved):
        images = []
        for picture in group.pictures:
            buffer = io.BytesIO()
            picture.figure.savefig(buffer, format="png", dpi=_DPI)
            files[_file_name(picture.name, files)] = buffer.getvalue()
            code = base64.b64encode(buffer.getvalue()).decode()
            images.append({"alt": picture.alt, "code": code})
        drawn.append(
            {
                "title": group.title,
                "caption": group.caption,
                "terms": glossary.explain(
                    group.caption, *(picture.alt for picture in group.pictures)
                ),
                "images": images,
            }
        )
    own = saved.folder if saved.folder.name else saved.folder.resolve()
    again = ["--config", own / "config.toml", "--out", f"{own}-again"]
    tables = {"rows": certificate_table(saved), "measured": measured_table(saved)}
    heads = [part for table in tables.values() if table for part in table.head]
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["unbroken"] = _unbroken
    source = resources.files(__package__).joinpath("report.html").read_text()
    text = environment.from_string(source).render(
        title=f"{saved.result['problem']}, {saved.result['method']}",
        # Files of before do not have it, nor the date.
        description=saved.result.get("description", ""),
        method=METHODS.get(saved.result["method"], ""),
        verdict=says,
        advice=advice,
        good=saved.result["finished"] and (saved.certificate or {}).get("holds"),
        when=_when(saved),
        figures=key_figures,
        integrals=integrals,
        groups=drawn,
        certificate=saved.certificate,
        certificate_terms=glossary.explain(*heads),
        steady=is_steady(saved),
        config=saved.config,
        command=f"sdifp train {shlex.join(map(str, again))}",
        result=saved.result,
        **tables,
        **top,
    )
    page = saved.folder / "report.html"
    write_whole(page, text.encode())
    figures = saved.folder / "figures"
    figures.mkdir(exist_ok=True)
    for name, data in files.items():
        write_whole(figures / name, data)
    for old in figures.glob("*.png"):
        if old.name not in files:
            old.unlink()
    return page


def _file_name(name: str, taken: Collection[str]) -> str:
    """A file name for a picture: invariants may have any name, that of another picture
    too."""
    stem = re.sub(r"[^\w.-]+", "_", name).lstrip(".")[:80] or "_"
    names = (f"{stem}{end}.png" for end in ("", *(f"-{k}" for k in range(2, 99))))
    return next(name for name in names if name not in taken)


def _unbroken(text: str) -> markupsafe.Markup:
    """A text for the page whose numbers are not broken at their signs."""
    parts = re.split(r"([+-]?\d[\d.]*e[+-]\d+)", text)
    number = markupsafe.Markup("<span>{}</span>")
    return markupsafe.Markup("").join(
        number.format(part) if k % 2 else part for k, part in enumerate(parts)
    )


def verdict(saved: Saved, with_advice: bool = True) -> str:
    """What came out of the run, in one sentence."""
    result, metrics = saved.result, saved.result["metrics"]
    parts = []
    if not result["finished"]:
        text = f"not finished, step {metrics['step']} of {metrics['steps']}"
        if not is_steady(saved):
            text += f", measured until t = {result['until']:.4g}"
        parts.append(text)
    if saved.certificate is not None:
        text = saved.certificate["verdict"]
        if not with_advice:
            text = text.removesuffix(f"; {saved.certificate.get('advice')}")
        parts.append(text.replace("+-", "±"))
        # Files of before do not have it.
        if saved.certificate.get("training"):
            parts.append(saved.certificate["training"])
    else:
        by = "by" if is_steady(saved) else "by up to"
        off = [
            f"{in_words(name)} is off {by} {shown(worst_error(saved, name))}"
            for name in prescribed(saved)
        ]
        parts.append(
            "nothing is prescribed" + (f": the {' and the '.join(off)}" if off else "")
        )
    functional = functional_value(saved)
    if functional is not None:
        name, value, away = functional
        known = f", {away}" if away else ""
        parts.append(
            f"the {in_words(name)} is {value} (the interval covers the error of the "
            f"quadrature only, not that of the network){known}"
        )
    for name in measured(saved):
        if is_steady(saved):
            parts.append(
                f"the {in_words(name)}, measured only, is {measured_value(saved, name)}"
            )
            continue
        drift = shown(worst_drift(saved, name))
        parts.append(f"the {in_words(name)}, measured only, drifts by up to {drift}")
    if result["has_reference"]:
        each = ", ".join(f"{k} {shown(v)}" for k, v in l2_errors(saved).items())
        own = f" ({each})" if each else ""
        parts.append(f"the relative L2 error is {shown(metrics['l2_error'])}{own}")
    return _sentence("; ".join(parts))


def _advice(saved: Saved) -> str:
    """What to do where the rule limits the accuracy of the integrals; else nothing."""
    text = (saved.certificate or {}).get("advice", "")
    return _sentence(text) if text else ""


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _when(saved: Saved) -> str:
    """The date of the evaluation, and how long the training took."""
    result = saved.result
    text = f"Wall time of the training: {clock(result['metrics']['seconds'])}"
    compilation = result.get("compile_seconds")
    if compilation is not None:
        text += f", of which {clock(compilation)} to compile the step"
    evaluated = result.get("evaluated")
    if evaluated:
        date = evaluated.removesuffix("+00:00").replace("T", " ")
        text = f"Evaluated on {date} UTC. {text}"
    return f"{text}."


def _key_figures(saved: Saved) -> list[tuple[str, str]]:
    result, metrics = saved.result, saved.result["metrics"]
    found = []
    if result["has_reference"]:
        found.append(("relative L2 error", shown(metrics["l2_error"])))
        each = l2_errors(saved).items()
        found += [(f"relative L2 error of {k}", shown(value)) for k, value in each]
    functional = functional_value(saved)
    if functional is not None:
        found.append((in_words(functional[0]), functional[1]))
    for name in prescribed(saved):
        text = f"{in_words(name)}, error on an independent rule"
        found.append((text, shown(worst_error(saved, name))))
    for name in measured(saved):
        if is_steady(saved):
            found.append((in_words(name), measured_value(saved, name)))
        else:
            found.append((f"{in_words(name)}, drift", shown(worst_drift(saved, name))))
    found.append(("steps", f"{metrics['step']} of {metrics['steps']}"))
    found.append(("wall time, with compilation", clock(metrics["seconds"])))
    if metrics["scale"] is not None:
        scale = ["not finite" if v is None else f"{v:.4g}" for v in metrics["scale"]]
        # Without time there is one.
        found.append(("scale", " to ".join(dict.fromkeys(scale))))
    return found
