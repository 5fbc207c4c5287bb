"""Writes the address of the published repository wherever it stands: links, badges, install cells.

    python -m colab.publish https://github.com/ACCOUNT/jaxrag
    python -m colab.publish ""

The address is in `pyproject.toml`; README.md, mkdocs.yml and the notebooks follow it. With "", as
before publication, the README links to the notebooks' files, and a notebook says how to open it in
Colab by hand.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
BADGE = "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
BY_HAND = "To open in Colab: File, Upload notebook, and set `REPOSITORY` in the first cell."
_URLS = re.compile(r'\[project\.urls\]\nRepository = ".*"\n\n')
_SITE = re.compile(r"(?:repo|site)_url: .*\n")
_LINK = re.compile(r"\]\((?:https://colab\S+/)?colab/(?P<name>\w+)\.ipynb\)")
_OPENING = re.compile(rf"{re.escape(BADGE)}\(.*?\.ipynb\)|{re.escape(BY_HAND)}")
_ADDRESS = re.compile(r'(?P<start>REPOSITORY = )(?P<quote>\\?")[^"\\]*\\?"')


def main(argv: Sequence[str]) -> int:
    """Writes the files of this repository."""
    parser = argparse.ArgumentParser(prog="python -m colab.publish", description=__doc__)
    parser.add_argument("repository", help='such as https://github.com/ACCOUNT/jaxrag, or ""')
    repository = parser.parse_args(argv[1:]).repository.removesuffix("/").removesuffix(".git")
    if repository and not re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+", repository):
        parser.error(f"{repository!r} is not https://github.com/ACCOUNT/NAME; Colab opens no other")
    for path, text in written(ROOT, repository).items():
        if text != path.read_text("utf-8"):
            path.write_text(text, "utf-8")
            print(path.relative_to(ROOT))
    return 0


def repository_of(root: Path) -> str:
    """The address in `pyproject.toml`; "" before publication."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    return project.get("urls", {}).get("Repository", "")


def written(root: Path, repository: str) -> dict[Path, str]:
    """All files that have the address or would have it, with their new texts."""
    edits: dict[str, Callable[[str], str]] = {
        "pyproject.toml": lambda text: _project(text, repository),
        "mkdocs.yml": lambda text: _site(text, repository),
        "README.md": lambda text: _LINK.sub(
            lambda at: f"]({address(at['name'], repository)})", text
        ),
    }
    found = {root / name: edit((root / name).read_text("utf-8")) for name, edit in edits.items()}
    for path in sorted((root / "colab").glob("[0-9]*.*")):
        opening = link(path.stem, repository) if repository else BY_HAND
        text = _OPENING.sub(lambda _, new=opening: new, path.read_text("utf-8"))
        found[path] = _ADDRESS.sub(
            lambda at: f"{at['start']}{at['quote']}{repository}{at['quote']}", text
        )
    return found


def link(name: str, repository: str) -> str:
    """The badge that opens a notebook in Colab."""
    return f"{BADGE}({address(name, repository)})"


def address(name: str, repository: str) -> str:
    """Where a notebook is opened: in Colab, or before publication its file."""
    file = f"colab/{name}.ipynb"
    account = repository.removeprefix("https://github.com/")
    start = f"https://colab.research.google.com/github/{account}/blob/main/"
    return start + file if repository else file


def _project(text: str, repository: str) -> str:
    urls = f'[project.urls]\nRepository = "{repository}"\n\n' if repository else ""
    before, mark, after = _URLS.sub("", text).partition("[project.optional-dependencies]\n")
    return f"{before}{urls}{mark}{after}"


def _site(text: str, repository: str) -> str:
    before, mark, after = _SITE.sub("", text).partition("docs_dir:")
    account, _, name = repository.removeprefix("https://github.com/").partition("/")
    # where its page of errors finds its style
    pages = f"https://{account.lower()}.github.io/{name}/"
    urls = f"repo_url: {repository}\nsite_url: {pages}\n" if repository else ""
    return f"{before}{urls}{mark}{after}"


if __name__ == "__main__":
    sys.exit(main(sys.argv))
