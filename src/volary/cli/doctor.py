"""Show what this machine has and what works on it."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import say, say_json, say_pairs, say_table

if TYPE_CHECKING:
    from volary.cli.diagnosis.machine import Machine
    from volary.comm.groups.listeners import ListeningSocket
    from volary.run.directory import RunDirectory


@click.command()
@click.argument("run", type=arguments.RunName(), required=False)
@arguments.as_json
def doctor(run: RunDirectory | None, as_json: bool) -> None:
    """Show what this machine has and what works on it; with RUN, the sockets that a live run listens on."""
    if run is not None:
        _sockets(run, as_json)
        return
    from volary.cli.diagnosis.checks import available, findings
    from volary.cli.diagnosis.machine import look

    machine = look()
    found, plugins = findings(machine), available()
    if as_json:
        say_json({"machine": asdict(machine), "findings": [asdict(each) for each in found], "plugins": plugins})
        return
    say_pairs(_facts(machine))
    say("\nwhat works here")
    say_table(("what", "works", "why"), [(each.what, each.works, each.why) for each in found])
    say("\nwhat the settings can name")
    for setting, names in plugins.items():
        line = f"{setting}: {', '.join(names['built'])}"
        say(textwrap.fill(line, width=80, subsequent_indent="    ", break_on_hyphens=False))


def _facts(machine: Machine) -> list[tuple[str, str]]:
    from volary.monitor.wording import size

    def limit(pair: tuple[int, int], unit: bool) -> str:
        return " of ".join("no limit" if value < 0 else size(value) if unit else str(value) for value in pair)

    torch = machine.torch
    backends = [name for name, there in torch.backends.items() if there] if torch else []
    return [
        ("volary", machine.volary),
        ("python", f"{machine.python} on {machine.system}"),
        ("cores", f"{len(machine.usable_cores)} usable of {machine.cores}: {_ranges(machine.usable_cores)}"),
        ("memory", size(machine.memory_bytes)),
        ("shared memory", size(machine.shared_memory_bytes) if machine.shared_memory_bytes else "none"),
        ("accelerators", ", ".join(torch.accelerators) if torch and torch.accelerators else "none"),
        ("torch", f"{torch.version}, built for {torch.built_for}, with {', '.join(backends)}" if torch else "missing"),
        ("open files", limit(machine.open_files, unit=False)),
        ("locked memory", limit(machine.locked_memory, unit=True)),
    ]


def _ranges(cores: list[int]) -> str:
    """`0-3, 8` for 0, 1, 2, 3, 8."""
    runs: list[list[int]] = []
    for core in cores:
        if runs and core == runs[-1][-1] + 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _sockets(run: RunDirectory, as_json: bool) -> None:
    from volary.comm.groups.listeners import listeners

    found = listeners(_pids(run)) if run.is_live() else []
    if as_json:
        rows = [{**asdict(each), "beyond_loopback": each.beyond_loopback} for each in found]
        say_json({"run": str(run.path), "live": run.is_live(), "listeners": rows})
        return
    if not run.is_live():
        say(f"{run.name} is not running: it has no processes and no sockets")
        return
    say_table(("pid", "address", "port", "reachable"), [_cells(each) for each in found])
    beyond = [each for each in found if each.beyond_loopback]
    say(
        f"\n{len(found)} listening, {len(beyond)} beyond loopback"
        + (": other machines can reach these" if beyond else "")
    )


def _cells(each: ListeningSocket) -> tuple[str, ...]:
    reach = "BEYOND LOOPBACK" if each.beyond_loopback else "this machine alone"
    return str(each.pid), each.address, str(each.port), reach


def _pids(run: RunDirectory) -> list[int]:
    from volary.run.database.reader import RunReader

    with RunReader(run) as reader:
        info = reader.info()
    return [int(pid) for key in ("pids", "server_pids") for pid in json.loads(info.get(key, "[]"))]
