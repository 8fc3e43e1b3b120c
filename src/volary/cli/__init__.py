"""The command `volary`: one short file per verb, which parses, calls and prints. Guide: docs/command-line.md

Nothing heavy is imported before a verb needs it: the list of verbs is this folder, and a verb's line in it is the first
line of its file.
"""

import sys


def main() -> None:
    """Run the command with the arguments of this process, and exit with its status."""
    status = 130
    try:
        import signal

        from volary.errors.interruption import raise_when_interrupted

        raise_when_interrupted()
        from volary.cli.command.main import run

        status = run(sys.argv[1:])
        # all is said: another Ctrl-C must not end in a traceback on the way out
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    except KeyboardInterrupt:
        pass  # while modules were being imported
    sys.exit(status)
