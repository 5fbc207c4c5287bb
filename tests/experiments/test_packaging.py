"""The command ``jaxrag``, and the wheel that brings it into an empty environment."""

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import jaxrag
import jaxrag.experiments
from jaxrag.evaluation.summary import BASELINE
from jaxrag.experiments import __main__ as command
from jaxrag.experiments import options
from jaxrag.experiments.configuration import parse_named
from jaxrag.reproduction.substitutes import INDEXES
from jaxrag.reproduction.tables import SCALES
from jaxrag.runs.config_file import find, load
from jaxrag.runs.placement import ENGINES
from tests.docs.test_own_method import documented_block

ROOT = Path(__file__).parents[2]


def test_the_table_has_every_script() -> None:
    found = {
        file.stem
        for file in (ROOT / "experiments").glob("*.py")
        if "\n    script(main)" in file.read_text("utf-8")
    }
    assert set(map(options.module_of, options.COMMANDS)) == found


def test_usage_version_and_unknown_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, code in ((["--help"], 0), ([], 0), (["--version"], 0), (["reprot"], 2)):
        monkeypatch.setattr(sys, "argv", ["jaxrag", *arguments])
        with pytest.raises(SystemExit) as stop:
            command.main()
        assert stop.value.code == code
    output = capsys.readouterr()
    assert output.out.count("  ask          Answers one question") == 2
    assert f"\njaxrag {jaxrag.__version__}\n" in output.out
    assert "no command 'reprot'. Nearest: report." in output.err


def test_help_has_usage_and_every_option() -> None:
    for name, one in options.COMMANDS.items():
        text = options.usage(name)
        assert text.startswith(f"usage: jaxrag {name}")
        listed = re.findall(r"^  --([\w-]+) +\S.*; default: ", text, re.M)
        assert listed == [row[1] for row in one.options]
        assert max(map(len, f"{options.overview()}\n{text}".splitlines())) <= 100


def test_help_needs_no_jax() -> None:
    code = "import sys; sys.argv[1:] = ['run', '--help']\n"
    code += "from jaxrag.experiments.__main__ import main\n"
    code += "try: main()\nfinally: assert not {'jax', 'numpy', 'rich'} & {*sys.modules}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and done.stdout.startswith("usage: jaxrag run"), done.stderr


def test_a_new_option_is_in_the_help_and_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    command = options.COMMANDS["status"]
    row = (options.COUNT, "newest", 7, "runs that were written last")
    changed = command._replace(options=(*command.options, row))
    monkeypatch.setitem(options.COMMANDS, "status", changed)
    assert "\n  --newest  runs that were written last; default: 7\n" in options.usage("status")
    assert parse_named(["status", "runs", "--newest=3"], "status")[1].newest == 3


def test_the_values_of_options_are_those_of_the_settings() -> None:
    assert (options.SCALES, options.ENGINES, options.INDEXES) == (SCALES, ENGINES, INDEXES)
    assert options.define("report")["baseline"].default == BASELINE


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
        if (ROOT / name).exists() and name.startswith(
            ("jaxrag/", "configs/", "experiments/", "pyproject.toml", "README.md", "LICENSE")
        ):
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target, follow_symlinks=False)
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

    names = zipfile.ZipFile(wheel).namelist()
    assert "jaxrag/py.typed" in names
    tops = {name.partition("/")[0] for name in names}
    assert {name for name in tops if not name.endswith(".dist-info")} == {"jaxrag"}
    user = tmp_path / "user"
    for name in ("configs", "experiments"):  # packages of the user's own
        (user / name).mkdir(parents=True)
        (user / name / "__init__.py").write_text("raise SystemExit('the wrong package')")
    (user / "twice.py").write_text(documented_block("Twice"))
    monkeypatch.setenv("PYTHONPATH", str(user))

    def output(*words: str) -> str:
        return subprocess.check_output([home / "bin" / "jaxrag", *words], cwd=user, text=True)

    assert "What is the capital of Peru?" in output("ask", "--help")
    assert "dtr/table2" in output("reproduce", "--list")
    plan = output("run", "--config=configs/dtr.py:dtr@tiny", "--dry-run", "--workdir=run")
    assert plan.split()[:3] == ["method", "dtr", "(dtr)"]
    own = ("--config.method=twice.py:Twice", "--config.method.k=2", "--config.data.countries=2")
    plan = output("run", "--config=configs/dtr.py:dtr@tiny", *own, "--dry-run", "--workdir=run")
    assert plan.split()[:3] == ["method", "twice", "(Twice)"]


@pytest.mark.parametrize("file", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda f: f.stem)
def test_a_workflow_calls_targets_that_exist_and_has_no_secret(file: Path) -> None:
    text = file.read_text("utf-8")
    (jobs,) = (part for name, part in yaml.safe_load(text).items() if name == "jobs")
    lines = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert {*re.findall(r"^make (\S+)", "\n".join(lines), re.M)} <= {*targets}
    assert "secrets." not in text


def test_every_python_is_tested_and_named() -> None:
    tests = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [re.sub(r".*Python :: ", "", one) for one in project["classifiers"] if "Python" in one]
    assert tests["jobs"]["test"]["strategy"]["matrix"]["python"] == named
    assert project["requires-python"] == f">={named[0]}"


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
