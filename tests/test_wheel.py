"""A wheel built from the checkout works outside of it: it has the data, the plug-ins and the command that it needs."""

import os
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent


def ran(*command, folder, at_most_s=300):
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        capture_output=True,
        text=True,
        timeout=at_most_s,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("hatchling", reason="`make setup` installs what builds the package")
    folder = tmp_path_factory.mktemp("wheel")
    ran(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, CHECKOUT, folder=folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def machine(wheel, tmp_path_factory):
    """A fresh environment with the wheel; what it depends on is lent from this one, so that nothing is downloaded."""
    folder = tmp_path_factory.mktemp("machine")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    ran(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, folder=folder)
    lent = next(folder.glob("lib/python*/site-packages")) / "lent.pth"
    lent.write_text("\n".join(site.getsitepackages()) + "\n")
    return folder


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"volary"}
    assert "volary/py.typed" in names
    assert any(name.endswith("LICENSE") for name in names)
    ours = {
        str(file.relative_to(CHECKOUT / "src"))
        for file in (CHECKOUT / "src" / "volary").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert ours == {name for name in names if name.startswith("volary/")}


@pytest.mark.slow
def test_an_installed_wheel_checks_and_trains_outside_the_checkout(machine, tmp_path):
    volary = machine / "bin" / "volary"
    where = ran(machine / "bin" / "python", "-c", "import volary; print(volary.__file__)", folder=tmp_path)
    assert Path(where.strip()).is_relative_to(machine)
    ran(volary, "init", folder=tmp_path)
    assert "name: digits" in ran(volary, "check", "session.yaml", folder=tmp_path)
    said = ran(volary, "train", "session.yaml", "train.epochs=1", "run.name=first", folder=tmp_path)
    assert "finished" in said
    assert '"finished"' in ran(volary, "show", "first", "--json", folder=tmp_path)
