"""The command ``jaxrag``, and the wheel that brings it into an empty environment."""

import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import experiments
from experiments import __main__ as command
from jaxrag.runs.config_file import find, load

ROOT = Path(__file__).parents[2]


def test_the_table_has_every_script() -> None:
    found = {
        file.stem
        for file in Path(experiments.__file__).parent.glob("*.py")
        if "\n    script(main)" in file.read_text("utf-8")
    }
    assert set(map(command.module_of, command.COMMANDS)) == found


def test_usage_and_unknown_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, code in ((["--help"], 0), ([], 2), (["reprot"], 2)):
        monkeypatch.setattr(sys, "argv", ["jaxrag", *arguments])
        with pytest.raises(SystemExit) as stop:
            command.main()
        assert stop.value.code == code
    output = capsys.readouterr()
    assert "  ask         Answers one question" in output.out
    assert "no command 'reprot'. Nearest: report." in output.err


def test_a_config_file_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found from any directory, unless that has a file of the same path."""
    monkeypatch.chdir(tmp_path)
    assert Path(find("configs/dtr.py")).samefile(ROOT / "configs" / "dtr.py")
    assert load("configs/dtr.py:dtr@tiny").name == "dtr"
    own = tmp_path / "configs" / "dtr.py"
    own.parent.mkdir()
    own.write_text("")
    assert find("configs/dtr.py") == "configs/dtr.py"


@pytest.mark.slow
def test_the_wheel_in_an_empty_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment sees the packages beside jaxrag, but neither jaxrag nor the repository."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    source = tmp_path / "source"
    files = subprocess.check_output(["git", "-C", ROOT, "ls-files", "-z"], text=True).split("\0")
    for name in filter(None, files):
        if (ROOT / name).is_file() and name.startswith(
            ("jaxrag/", "configs/", "experiments/", "pyproject.toml", "README.md", "LICENSE")
        ):
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    offline = ["-q", "--no-deps", "--no-index"]
    build = ["wheel", *offline, "--no-build-isolation", "-w", tmp_path, source]
    subprocess.run([*pip, *build], check=True)
    home = tmp_path / "environment"
    venv.create(home)
    python = str(home / "bin" / "python")
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([*pip, "--python", python, "install", *offline, wheel], check=True)
    packages = home / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))

    def output(*words: str) -> str:
        return subprocess.check_output([home / "bin" / "jaxrag", *words], cwd=tmp_path, text=True)

    assert "What is the capital of Peru?" in output("ask", "--help")
    assert "dtr/table2" in output("reproduce", "--list")
    plan = output("run", "--config=configs/dtr.py:dtr@tiny", "--dry-run", "--workdir=run")
    assert plan.startswith("method")


def test_the_oldest_versions_are_the_floors() -> None:
    """What `make test-oldest` installs of each dependency is what pyproject.toml begins at."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    stated = [*project["dependencies"], *extras["bm25"], *extras["figures"]]
    floors = {one.name.lower(): one.specifier for one in map(Requirement, stated)}
    lines = (ROOT / "constraints-oldest.txt").read_text("utf-8").splitlines()
    pins = dict(line.lower().split("==") for line in lines if not line.startswith("#"))
    assert pins.pop("jaxlib") == pins["jax"]
    assert set(pins) == set(floors)
    for name, pin in pins.items():
        (floor,) = (one.version for one in floors[name] if one.operator == ">=")
        assert f"{pin}.".startswith(f"{floor}."), name  # 2.1.3 is of 2.1
