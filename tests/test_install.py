"""How `make` installs: which torch is taken, what is said first. Packages are tiny wheels in a folder, pip is real."""

import os
import shutil
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

INSTALL = Path(__file__).resolve().parent.parent / "tools" / "install.py"
BACKEND = '''
import zipfile

def _wheel(folder, editable=False):
    with zipfile.ZipFile(f"{folder}/volary-1-py3-none-any.whl", "w") as file:
        file.writestr("volary-1.dist-info/METADATA", METADATA)
        file.writestr("volary-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        file.writestr("volary-1.dist-info/RECORD", "")
    return "volary-1-py3-none-any.whl"

METADATA = """Metadata-Version: 2.1
Name: volary
Version: 1
Requires-Dist: torch>=2.10
Requires-Dist: small
Provides-Extra: dev
Requires-Dist: large; extra == "dev"
"""

def build_wheel(folder, config_settings=None, metadata_directory=None):
    return _wheel(folder)

build_editable = build_wheel
'''
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "volary"
version = "1"
dependencies = ["torch>=2.10", "small"]
"""


def put_wheel(folder, name, version, *needs):
    stem = f"{name}-{version}"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {one}" for one in needs)]
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as file:
        file.writestr(f"{stem}.dist-info/METADATA", "\n".join(metadata) + "\n")
        file.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{stem}.dist-info/RECORD", "")


@pytest.fixture
def checkout(tmp_path):
    """A project like ours, and an index with torch 2.11, 2.15 and 2.16, of which 2.15 is pinned."""
    folder = tmp_path / "volary"
    (folder / "tools").mkdir(parents=True)
    shutil.copy(INSTALL, folder / "tools")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "backend.py").write_text(BACKEND)
    (folder / "constraints.txt").write_text("torch==2.15.0\nsmall==1.0\nlarge==1.0\n")
    index = tmp_path / "index"
    index.mkdir()
    for name in ("hatchling", "editables", "small", "large", "nvidia_cudnn"):
        put_wheel(index, name, "1.0")
    put_wheel(index, "small", "2.0")
    for version in ("2.9.0", "2.11.0", "2.15.0", "2.16.0"):
        put_wheel(index, "torch", version, "nvidia-cudnn")
    return folder


def installed(checkout, *extras, python=None, at_most_s=300):
    """(what was printed, packages with their versions) of an installation into .venv, on a machine without a GPU.

    python: one without torch, if none is given.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(checkout.parent / "index"), "PIP_CONFIG_FILE": os.devnull}
    venv.create(checkout.parent / "bare", symlinks=True)
    done = subprocess.run(
        [str(python or checkout.parent / "bare" / "bin" / "python"), "tools/install.py", ".venv", *extras],
        cwd=checkout,
        env={**variables, **index, "PATH": "/no/nvidia-smi"},
        capture_output=True,
        text=True,
        timeout=at_most_s,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    code = (
        "from importlib.metadata import distributions as d; print(*(f'{p.name} {p.version}' for p in d()), sep=chr(10))"
    )
    lines = subprocess.run(
        [checkout / ".venv" / "bin" / "python", "-I", "-c", code], capture_output=True, text=True, check=True
    ).stdout
    return done.stdout, dict(line.split() for line in lines.splitlines())


@pytest.fixture(autouse=True)
def no_gpu():
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has an NVIDIA GPU, for which the CUDA build is taken")


def test_a_cpu_build_of_the_index_is_preferred_where_there_is_no_gpu(checkout):
    put_wheel(checkout.parent / "index", "torch", "2.12.0+cpu")
    put_wheel(checkout.parent / "index", "torch", "2.14.1+cpu")
    put_wheel(checkout.parent / "index", "torch", "2.16.0+cpu")  # newer than what is tested
    said, packages = installed(checkout)
    assert packages["torch"] == "2.14.1+cpu"
    assert packages["small"] == "1.0", "what constraints.txt pins, not the newest"
    assert "large" not in packages, "a demo needs no developer's packages"
    first, *rest = said.splitlines()
    assert "2 packages" in first
    assert "torch 2.14.1+cpu, a CPU build" in first
    assert sum("of 2: " in line for line in rest) == 2, "a line for each package"


@pytest.mark.slow  # makes an environment with pip
def test_a_large_build_is_said_first_with_the_ways_to_a_smaller_one(checkout):
    said, packages = installed(checkout)
    assert packages["torch"] == "2.15.0"
    announced = said[: said.index("1 of ")]
    assert "torch 2.15.0, a CUDA build (about 3 GB" in announced
    assert "PIP_EXTRA_INDEX_URL=" in announced
    assert "PYTHON=" in announced


@pytest.mark.slow  # makes an environment with pip, twice
def test_the_torch_of_the_python_that_is_named_is_taken(checkout, tmp_path):
    venv.create(tmp_path / "theirs", with_pip=True)
    theirs = tmp_path / "theirs" / "bin" / "python"
    index = ["--no-index", "--find-links", str(tmp_path / "index")]
    subprocess.run([theirs, "-m", "pip", "-q", "install", *index, "torch==2.11.0"], check=True, timeout=300)
    said, packages = installed(checkout, python=theirs)
    assert packages["torch"] == "2.11.0"
    assert "torch" not in said


@pytest.mark.slow  # makes an environment with pip, twice
def test_what_developers_need_comes_later_and_keeps_torch(checkout):
    put_wheel(checkout.parent / "index", "torch", "2.11.0+cpu")
    installed(checkout)
    put_wheel(checkout.parent / "index", "torch", "2.15.0+cpu")
    said, packages = installed(checkout, "dev")
    assert packages["large"] == "1.0"
    assert packages["torch"] == "2.11.0+cpu"
    assert "1 of 1: large" in said
