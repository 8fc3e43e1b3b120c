"""Make an environment and install Volary in it, what `make` calls: `python tools/install.py ENVIRONMENT [EXTRA ...]`.

torch's builds differ in size by a factor of ten. What is taken, in this order, among the releases that Volary is tested
with: the torch that this Python, or the environment, has; without an NVIDIA GPU, the newest CPU build that the
configured package indexes offer; the newest release. All else is what constraints.txt pins. What will be fetched is
said first.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
BUILDS = {"a CPU build": "about 0.2 GB to fetch, 0.7 GB on disk", "a CUDA build": "about 3 GB to fetch, 6 GB on disk"}
SMALLER = """\
  This machine has no NVIDIA GPU. For a CPU build press Ctrl-C, and name an index that has them (pytorch.org lists it),
  or a Python that has torch:  make PIP_EXTRA_INDEX_URL=<index>  or  make PYTHON=<python>"""


@dataclass(frozen=True)
class Package:
    """One that pip will install."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


def main(environment: Path, extras: list[str]) -> int:
    """Install, and say how far it is. Returns pip's exit status."""
    python = environment / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        lend_torch(Path(sys.executable), environment)
    torch, _ = installed_torch(python)
    if not is_tested(torch):
        torch = chosen_torch(python)
    pins = [line for line in (CHECKOUT / "constraints.txt").read_text().splitlines() if not line.startswith("torch==")]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        print(*pins, f"torch=={torch}", sep="\n", file=constraints, flush=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--constraint", constraints.name]
        # first what builds the package, pinned too: pip would fetch any version of it into a build of its own
        subprocess.run([*pip, "-qq", "hatchling", "editables"], check=True)
        project = ["--no-build-isolation", "--editable", f"{CHECKOUT}[{','.join(extras)}]" if extras else str(CHECKOUT)]
        packages = to_install([*pip, *project])
        print(summary(environment, packages), flush=True)
        # a quarter of what an extra brings is ever imported: compiled when it is
        status = fetch([*pip, "--no-deps", *(["--no-compile"] if extras else [])], packages)
        return status or subprocess.run([*pip, "-qq", "--no-deps", *project]).returncode


def installed_torch(python: Path) -> tuple[str, str]:
    """Version and folder of the torch that `python` has; "" if it has none."""
    code = (
        "from importlib.metadata import distribution as d; t = d('torch'); print(t.version); print(t.locate_file(''))"
    )
    found = subprocess.run([str(python), "-I", "-c", code], capture_output=True, text=True)
    version, folder = found.stdout.splitlines() if found.returncode == 0 else ("", "")
    return version, folder


def lend_torch(python: Path, environment: Path) -> None:
    """Let `environment` use what lies beside the torch of `python`, where that torch is one that Volary is tested with.

    More than `--system-site-packages`: `python` may be of an environment itself.
    """
    version, folder = installed_torch(python)
    if is_tested(version):
        (next(environment.glob("lib/python*/site-packages")) / "lent.pth").write_text(folder + "\n")


def is_tested(torch: str) -> bool:
    """Whether Volary is tested with it: from what pyproject.toml asks for to what constraints.txt pins."""
    oldest = re.search(r'"torch>=([\d.]+)"', (CHECKOUT / "pyproject.toml").read_text())
    assert oldest is not None
    return bool(torch) and _release(oldest[1]) <= _release(torch) <= _release(newest_torch())


def newest_torch() -> str:
    """The release that constraints.txt pins."""
    pinned = re.search(r"^torch==(\S+)", (CHECKOUT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    return pinned[1]


def chosen_torch(python: Path) -> str:
    """The version to install: a CPU build where that is enough and can be had."""
    if has_gpu():
        return newest_torch()
    asked = subprocess.run(
        [str(python), "-m", "pip", "index", "versions", "torch"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    offered = re.search(r"^Available versions: (.*)$", asked.stdout, re.MULTILINE)
    builds = [version for version in (offered[1].split(", ") if offered else []) if version.endswith("+cpu")]
    return max(filter(is_tested, builds), key=_release, default=newest_torch())


def has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU, as far as its driver shows."""
    return shutil.which("nvidia-smi") is not None or Path("/proc/driver/nvidia").exists()


def to_install(pip: list[str]) -> list[Package]:
    """The packages that `pip` would install, less the project itself."""
    done = subprocess.run([*pip, "-qq", "--dry-run", "--report", "-"], stdout=subprocess.PIPE, text=True, check=True)
    found = [one for one in json.loads(done.stdout)["install"] if "dir_info" not in one["download_info"]]
    return [Package(one["metadata"]["name"], one["metadata"]["version"]) for one in found]


def summary(environment: Path, packages: list[Package]) -> str:
    """The download that is needed, and how it could be smaller."""
    lines = [f"Installing Volary in {environment}: {len(packages)} packages."]
    torch = next((one for one in packages if one.name == "torch"), None)
    if torch is not None:
        cuda = any(one.name.startswith(("nvidia", "cuda")) for one in packages)
        build = "a CUDA build" if cuda else "a CPU build"
        lines[0] = f"{lines[0][:-1]}, among them torch {torch.version}, {build} ({BUILDS[build]})."
        if cuda and not has_gpu():
            lines.append(SMALLER)
    return "\n".join(lines)


def fetch(pip: list[str], packages: list[Package]) -> int:
    """Install `packages`, a line for each as its download begins. Returns pip's exit status."""
    if not packages:
        return 0
    with subprocess.Popen([*pip, *map(str, packages)], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        begun = 0
        for line in running.stdout:
            file = re.match(
                r"\s*(?:Downloading|Using cached|Processing) (\S+\.(?:whl|tar\.gz|zip))(?: \((.+)\))?$", line
            )
            if file:
                begun += 1
                size = f", {file[2]}" if file[2] else ""
                print(f"  {begun} of {len(packages)}: {file[1].rpartition('/')[2]}{size}", flush=True)
            elif line.startswith("Installing collected packages"):
                print("  all are here; unpacking them", flush=True)
    return running.returncode


def _release(version: str) -> tuple[int, ...]:
    """To compare by: (2, 13, 0) of "2.13.0+cpu"."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
    except subprocess.CalledProcessError as error:  # pip has said why
        sys.exit(error.returncode)
    except KeyboardInterrupt:
        sys.exit(130)
