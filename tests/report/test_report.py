"""The report: what it says, what it shows, and that it needs nothing else."""

import dataclasses
import html.parser
import json
import re
import shutil
import subprocess

import matplotlib.image
import matplotlib.text
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from quick import only
from quick_run import finished, quick_programs, small

import sdifp
from sdifp._folder import Saved, clock, continuum_of
from sdifp._report import compare_rows, draw_comparison, verdict, write_report
from sdifp._report._figures import groups
from sdifp._report._terms import METHODS

__all__ = ["finished", "quick_programs"]
pytestmark = pytest.mark.usefixtures("quick_programs")
NAMES = {
    *("mass", "mass-error", "squared_norm", "squared_norm-error"),
    *("lines", "field", "reference", "difference"),
    *("loss", "training-errors", "scale", "shift"),
}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.parametrize(
    ("centre", "margin", "shown"),
    [
        (3e-17, 2e-17, "rounding"),
        (3e-5, 2e-5, "+3.0e-05 +- 2.0e-05"),
        (-3e-17, 2e-5, "-3.0e-17 +- 2.0e-05"),
        (None, 1e-5, "not finite"),
    ],
)
def test_continuum_at_rounding_is_called_rounding(centre, margin, shown):
    row = {"continuum": centre, "continuum_margin": margin}
    assert continuum_of(row, 1e-14) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.4, "0 s"),
        (99.4, "99 s"),
        (192.3, "3 min 12 s"),
        (3599.7, "1 h 0 min"),
        (7500.0, "2 h 5 min"),
    ],
)
def test_a_wall_time_in_words(seconds, shown):
    assert clock(seconds) == shown


class Page(html.parser.HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.apart(tag)

    def handle_endtag(self, tag):
        self.apart(tag)

    def apart(self, tag):
        if tag not in ("span", "dfn"):
            self.text.append(" ")

    @property
    def words(self):
        return " ".join("".join(self.text).split())

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]


@pytest.fixture(scope="module")
def page(finished):
    file = write_report(finished.folder)
    assert file == finished.folder / "report.html"
    return file


def test_the_page_says_what_came_out(page, finished):
    found = Page(page.read_text())
    text = found.words
    saved = Saved.read(finished.folder)
    assert verdict(saved, with_advice=False) in text
    assert verdict(saved).startswith("Exact on the rule (worst error ")
    assert f"{saved.result['metrics']['l2_error']:.1e}" in text
    assert ("p", {"id": "verdict", "class": "verdict good"}) in found.elements
    # A row for each integral at five times, one of them the worst.
    regular = page.read_text().count('<td class="text">regular</td>')
    assert regular == len(saved.certificate["rows"]) == 10
    assert sum(a.get("class") == "worst" for a in found.all("tr")) == 1
    for field in dataclasses.fields(finished.config):
        value = getattr(finished.config, field.name)
        if value is not None:
            assert f"{field.name} {value} " in text
    assert f"sdifp train --config {finished.folder / 'config.toml'} --out" in text


def test_all_pictures_are_in_it_and_in_words(page, finished):
    images = Page(page.read_text()).all("img")
    assert len(images) == len(NAMES)
    for image in images:
        assert image["src"].startswith("data:image/png;base64,")
        assert re.search(r"\d", image["alt"])
    files = finished.folder / "figures"
    assert {f.stem for f in files.iterdir()} == NAMES
    for file in files.iterdir():
        pixels = matplotlib.image.imread(file)
        assert pixels.std() > 0.05
        assert pixels.shape[1] > 500


def test_letters_in_pictures_are_large_enough_on_a_phone(finished):
    """On a page of 400 pixels, whose margins take 32."""
    for group in groups(Saved.read(finished.folder)):
        for picture in group.pictures:
            inches = picture.figure.get_size_inches()[0]
            FigureCanvasAgg(picture.figure).draw()
            for text in picture.figure.findobj(matplotlib.text.Text):
                if text.get_text():
                    pixels = text.get_fontsize() / 72.0 * 368.0 / inches
                    # The exponents of powers of ten have 0.7 of the size.
                    exponent = 0.7 if "^{" in text.get_text() else 1.0
                    assert exponent * pixels >= 8.0, text


def test_nothing_outside_is_asked_for(page):
    text = page.read_text()
    assert "default-src 'none'; img-src data:" in text
    found = Page(text)
    for tag, attributes in found.elements:
        assert tag not in ("script", "iframe", "object")
        for name in ("src", "href"):
            assert attributes.get(name, "data:").startswith("data:")
    assert "url(" not in text
    assert "@import" not in text


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [1200, 390])
def test_a_browser_shows_it(page, finished, tmp_path, width):
    """At the width of a desk and of a phone: nothing is wider than the window."""
    probe = tmp_path / "probe.html"
    # A page around it that looks inside; it is not itself under the page's policy.
    policy = '<meta http-equiv="Content-Security-Policy"[^>]*>'
    script = """<script>
    window.addEventListener('load', () => {
      const images = [...document.images];
      const out = document.createElement('output');
      out.textContent = JSON.stringify({
        verdict: document.getElementById('verdict').innerText,
        rows: document.querySelectorAll('#certificate tbody tr').length,
        images: images.map(i => i.naturalWidth),
        wide: document.documentElement.scrollWidth,
        inner: window.innerWidth,
        requests: performance.getEntriesByType('resource')
          .filter(r => !r.name.startsWith('data:')).length,
      });
      document.body.append(out);
    });
    </script></body>"""
    text = re.sub(policy, "", page.read_text()).replace("</body>", script)
    probe.write_text(text)
    done = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu"),
            *(f"--window-size={width},900", "--virtual-time-budget=9000"),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"),
            f"file://{probe}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = re.search(r"<output>(.*)</output>", done.stdout)
    assert found, done.stderr[-2000:]
    seen = json.loads(found[1].replace("&amp;", "&"))
    says = verdict(Saved.read(finished.folder), with_advice=False)
    assert seen["verdict"] == says
    assert seen["rows"] == 10
    assert len(seen["images"]) == len(NAMES)
    assert min(seen["images"]) > 500
    assert seen["requests"] == 0
    assert seen["wide"] <= seen["inner"]


OTHERS = {
    "plain": {"method": "Plain", "seed": 1},
    "mass alone": {"problem": "fokker_planck"},
    "slices": {"problem": "advection(3)", "nodes": 64},
    "cloud": {"problem": "manufactured(8)", "nodes": 64, "final_nodes": 64},
}


@pytest.mark.parametrize("case", only(OTHERS, "plain"))
def test_other_runs_have_reports_too(case, tmp_path, monkeypatch):
    from sdifp.runs import _evaluation

    monkeypatch.setattr(_evaluation, "_SLICE", 9)
    run = sdifp.Run.create(tmp_path / "a", small(steps=2, every=1, **OTHERS[case]))
    run.train()
    run.evaluate()
    text = write_report(run.folder).read_text()
    saved = Saved.read(run.folder)
    found = Page(text)
    missing = {
        "plain": {"scale", "shift"},
        # Of a mass alone the scale is one at all times.
        "mass alone": {"squared_norm-error", "scale"},
        "slices": {"lines"},
        "cloud": {"lines", "reference"},
    }[case]
    names = {f.stem for f in (run.folder / "figures").iterdir()}
    assert names == NAMES - missing
    assert len(found.all("img")) == len(names)
    says = verdict(saved)
    if case == "plain":
        assert says.startswith("Nothing is prescribed: the mass is off by up to")
        assert "Plain corrects nothing" in text
        assert saved.certificate is None
        # And the two side by side.
        picture = draw_comparison([saved, saved], tmp_path / "b" / "both.png")
        assert matplotlib.image.imread(picture).std() > 0.05
        row, _ = compare_rows([saved, saved])
        assert row["method"] == "Plain"
        assert row["on_rule"] is None
        # The worst of all times, not only of those of the metrics.
        error = row["errors"]["mass"]
        assert error >= saved.result["metrics"]["errors"]["mass"]
        both = saved.result["integrals"]["invariants"]
        off = np.subtract(both["mass"]["values"]["field"], both["mass"]["target"])
        # The mean of u is smaller than its root mean square, which is the unit then.
        unit = np.sqrt(
            run.problem.domain.volume * np.array(both["squared_norm"]["target"])
        )
        assert np.all(unit > both["mass"]["target"])
        assert error == pytest.approx(np.max(np.abs(off) / unit))
    else:
        assert says.startswith("Exact on the rule")
    if case == "mass alone":
        both = saved.result["integrals"]["invariants"]
        assert both["squared_norm"]["target"] is None
        assert "the squared norm has no target" in text
    if case == "slices":
        assert saved.solution["u"].shape == (1, 81)
        x = saved.solution["x"]
        middle = run.problem.domain.lower[2] + run.problem.domain.width[2] / 2
        assert np.allclose(x[:, 2], middle)
    if case == "cloud":
        assert saved.solution["u"].size == 2048
        off = saved.solution["u"] - saved.solution["reference"]
        size = np.sqrt(np.mean(saved.solution["reference"] ** 2))
        l2 = np.sqrt(np.mean(off**2)) / size
        assert np.isclose(l2, saved.result["metrics"]["l2_error"], rtol=0.3)


def test_names_are_escaped(tmp_path, finished):
    folder = tmp_path / "copy"
    shutil.copytree(finished.folder, folder)
    file = folder / "result.json"
    result = json.loads(file.read_text())
    file.write_text(json.dumps(result | {"problem": "<script>alert(1)</script>"}))
    text = write_report(folder).read_text()
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_a_run_that_is_not_measured_has_no_report(tmp_path):
    run = sdifp.Run.create(tmp_path / "a", small())
    with pytest.raises(ValueError, match="has no result yet: `sdifp resume"):
        write_report(run.folder)
    run.evaluate()
    assert (
        "Not finished, step 0 of 12, measured until t = 1; "
        in write_report(run.folder).read_text()
    )
    (run.folder / "solution.npz").write_bytes(b"")
    with pytest.raises(ValueError, match=r"solution\.npz cannot be read .* evaluate"):
        write_report(run.folder)


def test_numbers_that_are_none_are_said_to_be_none(tmp_path, finished):
    folder = tmp_path / "copy"
    shutil.copytree(finished.folder, folder)
    result = json.loads((folder / "result.json").read_text())
    result["metrics"]["l2_error"] = result["metrics"]["scale"][0] = None
    mass = result["integrals"]["invariants"]["mass"]
    mass["values"]["field"][1] = mass["errors"]["field"][1] = None
    (folder / "result.json").write_text(json.dumps(result))
    certificate = json.loads((folder / "certificate.json").read_text())
    certificate["rows"][4] |= {"on_rule": None, "continuum": None}
    (folder / "certificate.json").write_text(json.dumps(certificate))
    text = Page(write_report(folder).read_text()).words
    assert "the relative L2 error is not finite." in text
    assert text.count("not finite") >= 4


def test_the_page_says_what_is_solved_when_and_how_long_it_took(page, finished):
    text = Page(page.read_text()).words
    assert finished.problem.description in text
    assert "SDIFP (Stochastic Dimension Implicit Functional Projections) trains" in text
    date = Saved.read(finished.folder).result["evaluated"]
    assert f"Evaluated on {date[:10]} {date[11:19]} UTC. Wall time of the tr" in text
    assert re.search(r"training: \d+ s, of which \d+ s to compile the step\.", text)


def test_every_term_is_explained_where_it_is_used_first(page):
    code = page.read_text()
    terms = re.findall(r"<li><dfn>(.*?)</dfn>: ", code)
    assert len(set(terms)) == len(terms)
    assert {
        *("On the rule", "Continuum", "Independent rule", "Raw network", "Target"),
        *("Scale", "Shift", "Relative L2 error", "Loss", "Status", "Window"),
        *("Mass", "Squared norm"),
    } == set(terms)
    # Not before the list that explains it, but after the list before that.
    body = code[code.index("<main>") :]
    for term in terms:
        known = body[: body.index(f"<dfn>{term}</dfn>")].rpartition('<ul class="ter')[0]
        known = "".join(known.rpartition("</ul>")[:2])
        assert not re.search(rf"\b{term}\b", Page(known).words, re.I)


def test_every_method_is_explained():
    assert {
        name
        for name, kind in vars(sdifp.training).items()
        if isinstance(kind, type)
        and issubclass(kind, sdifp.training.Method)
        and kind is not sdifp.training.Method
    } == set(METHODS)


def test_a_folder_of_before_has_a_report(tmp_path, finished):
    folder = copy_of(
        finished, tmp_path, description=None, evaluated=None, compile_seconds=None
    )
    found = Page(write_report(folder).read_text())
    assert "description" not in [a.get("id") for a in found.all("p")]
    assert "Evaluated" not in found.words
    assert "Wall time of the training: " in found.words


def test_advice_is_a_sentence_of_its_own(tmp_path, finished):
    folder = copy_of(finished, tmp_path)
    file = folder / "certificate.json"
    advice = "the rule is the limit: raise nodes to 64"
    known = json.loads(file.read_text())
    says = known["verdict"].removesuffix(f"; {known['advice']}")
    known |= {"advice": advice, "verdict": f"{says}; {advice}"}
    file.write_text(json.dumps(known))
    found = Page(write_report(folder).read_text())
    assert "advice" in [a.get("id") for a in found.all("p")]
    assert found.words.count("he rule is the limit") == 1
    # The terminal has it in the verdict.
    assert f"; {advice}" in verdict(Saved.read(folder))


def copy_of(run, tmp_path, **changes):
    """The folder of a run with another result; None takes a field away."""
    folder = tmp_path / "copy"
    shutil.copytree(run.folder, folder)
    file = folder / "result.json"
    known = json.loads(file.read_text()) | changes
    gone = [name for name, value in changes.items() if value is None]
    file.write_text(json.dumps({k: v for k, v in known.items() if k not in gone}))
    return folder


def without_time(folder, dimension):
    """Make a folder that of a problem without time: one value of everything."""
    last = lambda value: (
        {k: last(v) for k, v in value.items()}
        if isinstance(value, dict)
        else value[-1:]
        if isinstance(value, list)
        else value
    )
    result = json.loads((folder / "result.json").read_text())
    result |= {"until": None, "dimension": dimension}
    known = result["integrals"]
    known["times"] = [None]
    known["invariants"] = last(known["invariants"])
    known["invariants"]["roughness"] = {
        "density": "F",
        "target": None,
        "values": {"field": [1.25], "raw": [1.5]},
    }
    result["metrics"]["measured"] = {"roughness": {"value": 1.25}}
    (folder / "result.json").write_text(json.dumps(result))
    file = folder / "certificate.json"
    known = json.loads(file.read_text())
    known["rows"] = [row | {"time": None} for row in known["rows"][-2:]]
    row = {"time": None, "invariant": "roughness", "value": 1.25, "value_margin": 1e-3}
    known["measured"] = [row]
    file.write_text(json.dumps(known))
    side = 33 if dimension == 1 else 9
    axis = np.linspace(0.0, 1.0, side)
    planes = np.meshgrid(*(axis,) * min(dimension, 2), indexing="ij")
    x = np.stack(planes, -1).reshape(-1, min(dimension, 2))
    x = np.pad(x, ((0, 0), (0, dimension - x.shape[1])), constant_values=0.5)
    reference = np.sin(np.pi * x).prod(1)[None]
    arrays = {"u": 1.01 * reference, "reference": reference}
    if dimension <= 3:
        arrays["x"] = x
    np.savez(folder / "solution.npz", **arrays)


@pytest.mark.parametrize("dimension", only([1, 2, 3, 5], 1))
def test_a_problem_without_time_has_no_axis_of_time(tmp_path, finished, dimension):
    folder = copy_of(finished, tmp_path)
    without_time(folder, dimension)
    found = Page(write_report(folder).read_text())
    over_time = {"mass", "mass-error", "squared_norm", "squared_norm-error", "lines"}
    names = NAMES - over_time
    assert {f.stem for f in (folder / "figures").iterdir()} == (
        names if dimension in (2, 3) else names - {"reference"}
    )
    words = found.words
    assert "roughness, measured only, is 1.25 ± 1.0e-03" in words
    for phrase in ("over time", "at the last time", "drift", "times", "space and time"):
        assert phrase not in words
    assert {"integrals", "certificate", "measured"} <= {
        a.get("id") for a in found.all("table")
    }
    assert "<th>t</th>" not in (folder / "report.html").read_text()
    for image in found.all("img"):
        assert "time" not in image["alt"]
    saved = Saved.read(folder)
    picture = draw_comparison([saved, saved], tmp_path / "both.png")
    assert matplotlib.image.imread(picture).std() > 0.05
    assert compare_rows([saved])[0]["drifts"] == {}
