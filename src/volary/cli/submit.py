"""Put a run into the queue: it starts when there is room for it."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from volary.cli.command import arguments
from volary.cli.command.output import remark, say, say_json
from volary.cli.launch import parted
from volary.run.owner import refuse_foreign

if TYPE_CHECKING:
    from volary.jobs.asked import QueueRequest
    from volary.run.directory import RunDirectory


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, required=True, metavar="SESSION|RUN [NAME=VALUE]...")
@click.option("--launch", is_flag=True, help="What follows are settings, a program and its arguments, as of `launch`.")
@click.option(
    "--priority", type=int, default=0, show_default=True, help="Higher ones start first; lower ones give way."
)
@click.option("--after", multiple=True, metavar="RUN", help="Start when RUN has finished; may be repeated.")
@click.option("--cores", type=int, help="Cores of this machine; default: one for each worker.")
@click.option("--gpus", type=int, help="GPUs of this machine; default: one for each worker that computes on one.")
@click.option("--memory", metavar="SIZE", help="Memory that it takes, as 8gb; default: what earlier runs of it took.")
@click.option("--time", metavar="TIME", help="It ends within that, as 2h: then it may fill a gap.")
@click.option("--retries", type=int, default=3, show_default=True, help="Times that it is tried again after a loss.")
@click.option("--hold", is_flag=True, help="It does not start until `volary queue release`.")
@arguments.trust
@arguments.as_json
def submit(words: tuple[str, ...], launch: bool, trust: bool, as_json: bool, **asked: Any) -> None:
    """Queue a run of the session file SESSION, or resume RUN in it, with settings changed as in `optimizer.lr=0.05`.

    Returns at once. `volary queue` shows what waits and why, `volary attach` follows a run, `volary stop` ends it.
    With --launch a program that calls `volary.init()` is queued; options of its own come after `--`.
    """
    from volary.driver.tasks.submitting import submit_task
    from volary.jobs.asked import QueueRequest
    from volary.monitor.wording import place
    from volary.session.script import Script

    request = QueueRequest(**asked)
    if launch:
        settings, program, given = parted(words)
        run = submit_task(Script.of_program(program, given, settings), request)
    else:
        run = _session_or_run(words, request, trust)
    if as_json:
        say_json({"run": str(run.path)})
    else:
        say(place(run.path))
        remark(f"queued; follow it: volary attach {run.argument}")


def _session_or_run(words: tuple[str, ...], request: QueueRequest, trust: bool) -> RunDirectory:
    from volary.driver.resume import submit_again
    from volary.driver.tasks.submitting import submit_task
    from volary.run.directory import RunDirectory, is_run
    from volary.session import Session

    session, overrides = Path(words[0]), words[1:]
    if unknown := [word for word in words if word.startswith("-")]:
        context = click.get_current_context()
        options = [name for one in context.command.params for name in one.opts]
        raise click.NoSuchOption(unknown[0], possibilities=get_close_matches(unknown[0], options))
    path = next((one for one in (session, Path(arguments.RUNS_FOLDER) / session) if is_run(one)), None)
    if path is None:
        refuse_foreign(session, trust=trust)
        return submit_task(Session.read(session, overrides), request, file=session)
    run = RunDirectory(path)
    refuse_foreign(run.path, run.session, trust=trust)
    submit_again(run, request, overrides)
    return run
