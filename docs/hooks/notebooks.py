"""A hook of mkdocs: makes a page of each saved notebook in colab/, with its outputs."""

from __future__ import annotations

import base64
import json
import re
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

COLAB = Path(__file__).parents[2] / "colab"
_SHOWN = '<div class="notebook-output">{}</div>'
_PLACE = '<div data-output="{}"></div>'
_PLACES = re.compile(r'<div data-output="(\d+)"></div>')
_NOTEBOOK = re.compile(r"\]\((\w+)\.ipynb\)")
_FOLDED = "<details><summary>Installation</summary><pre>{}</pre></details>"
_outputs: dict[str, list[str]] = {}  # of each page, as HTML


def on_files(files: Files, *, config: Any) -> Files:
    """Adds ``tutorials/NAME.md`` for each ``colab/NAME.ipynb``."""
    for path in sorted(COLAB.glob("*.ipynb")):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        page = f"tutorials/{path.stem}.md"
        text, _outputs[page] = page_of(cells, path.name)
        files.append(File.generated(config, page, content=text))
    return files


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """Puts the outputs at their places; Markdown would change them."""
    outputs = _outputs.get(page.file.src_uri, [])
    return _PLACES.sub(lambda found: outputs[int(found[1])], html)


def page_of(cells: list[dict[str, Any]], name: str) -> tuple[str, list[str]]:
    """The Markdown of a notebook's page, and the outputs of its cells as HTML."""
    parts, outputs = [], []
    for number, cell in enumerate(cells):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(_NOTEBOOK.sub(r"](\1.md)", source).replace("](../docs/", "](../"))
            if number == 0:
                parts.append(f"This is `colab/{name}`.")
            continue
        if "cellView" in cell["metadata"]:  # the cell that installs jaxrag
            parts.append(_PLACE.format(len(outputs)))
            outputs.append(_SHOWN.format(_FOLDED.format(escape(source))))
        else:
            parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            parts.append(_PLACE.format(len(outputs)))
            outputs.append(_SHOWN.format(html_of(output)))
    return "\n\n".join(parts) + "\n", outputs


def html_of(output: dict[str, Any]) -> str:
    """An output of a cell as HTML: a picture, a table or text."""
    if output["output_type"] == "stream":
        return f"<pre>{escape(''.join(output['text']))}</pre>"
    data = {kind: "".join(content) for kind, content in output["data"].items()}
    if "image/svg+xml" in data:
        encoded = base64.b64encode(data["image/svg+xml"].encode()).decode()
        label = escape(data["text/plain"], quote=True)
        return f'<img src="data:image/svg+xml;base64,{encoded}" alt="{label}">'
    return data.get("text/html") or f"<pre>{escape(data['text/plain'])}</pre>"
