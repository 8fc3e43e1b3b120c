"""`python -m volary` is `volary`."""

import sys

# Pythons that are too old must be able to read this file (and `volary/__init__.py`) far enough to say so.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(
        f"Volary needs Python 3.11 or newer; this is {sys.version_info[0]}.{sys.version_info[1]} ({sys.executable})"
    )

if __name__ == "__main__":
    try:
        from volary.cli import main
    except KeyboardInterrupt:
        sys.exit(130)
    main()
