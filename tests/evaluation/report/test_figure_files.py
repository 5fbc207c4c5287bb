"""A page's figures as files of their own: whole pictures, without variables, none over another."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from jaxrag.evaluation.report.figure_files import write_figures
from jaxrag.evaluation.report.figures import figure
from jaxrag.experiments import report
from jaxrag.types import InputError
from tests.evaluation import fabricate
from tests.evaluation.report.test_training_page import training

SVG = "{http://www.w3.org/2000/svg}"


def read(file: Path) -> ElementTree.Element:
    assert "var(" not in file.read_text()
    drawn = ElementTree.parse(file).getroot()
    assert drawn.tag == f"{SVG}svg"
    return drawn


def texts(drawn: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in drawn.iter(f"{SVG}text")]


def test_the_script_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        training(tmp_path / name, seed=seed, right=([0, 1], [1, 1]))
        for seed, name in enumerate(("first", "second"))
    ]
    told = [f"--runs={path}" for path in runs]
    out, figures = tmp_path / "page.html", tmp_path / "deep" / "figures"
    assert report.main(["", *told, f"--out={out}", f"--figures={figures}"]) == 0
    assert f"wrote 2 figures to {figures}" in capsys.readouterr().out
    assert {file.stem for file in figures.iterdir()} == {
        "training-loss",
        "training-right",
    }
    right = read(figures / "training-right.svg")
    assert texts(right)[0] == "right" and texts(right)[-2:] == ["first", "second"]
    # the first training's marks are circles in the page's c0, the second's squares in c1
    style = next(right.iter(f"{SVG}style")).text or ""
    assert ".mark.c0 { fill: #5b6470;" in style and ".mark.c1 { fill: #0b62a4;" in style
    marks = [one.get("class") for one in right.iter() if "mark" in one.get("class", "")]
    assert marks.count("mark c0") == marks.count("mark c1") == 3  # two values, and the legend


def test_the_page_of_runs(tmp_path: Path) -> None:
    told = []
    for dataset in ("factbook", "<nq> & more"):
        for method in ("no_retrieval", "standard_rag", "dtr", "pairs"):
            path = tmp_path / dataset[:3].strip("<") / method
            told.append(f"--runs={fabricate.run(path, method, n=30, dataset=dataset)}")
    assert report.main(["", *told, f"--out={tmp_path / 'a.html'}"]) == 0
    assert not list(tmp_path.glob("**/*.svg"))  # none that nobody asked for
    files = write_figures(tmp_path / "a.html", tmp_path / "figures")
    assert len(files) == len(set(files)) == (tmp_path / "a.html").read_text().count("<figure>")
    first, second = (f"{name}-accuracy-against-llm-calls.svg" for name in ("factbook", "nq-more"))
    for file in files:
        x, y, width, height = map(float, (read(file).get("viewBox") or "").split())
        assert x < 0 and y == 0 and width > 400 and height > 100
    for name in (first, second):
        shown = texts(read(tmp_path / "figures" / name))
        assert set(shown[-4:]) == {"no_retrieval", "standard_rag", "dtr", "pairs"}


def test_names_that_would_be_too_long_or_the_same(tmp_path: Path) -> None:
    drawing = '<svg viewBox="0 0 10 10" role="img"><text>1 &lt; 2</text></svg>'
    titles = ["Why? " * 99, "Why? " * 100, "Is 1 < 2?"]
    body = "".join(figure(title, drawing, "") for title in titles)
    page = tmp_path / "page.html"
    page.write_text(f"<section><h2>A</h2>{body}</section>")
    files = write_figures(page, tmp_path / "figures")
    assert len(files[0].stem) == 80 and files[1].stem == f"{files[0].stem}-2"
    assert files[2].name == "a-is-1-2.svg" and texts(read(files[2])) == ["Is 1 < 2?", "1 < 2"]
    page.write_text("<section><h2>A</h2></section>")
    with pytest.raises(InputError, match="has no figures"):
        write_figures(page, tmp_path / "figures")
