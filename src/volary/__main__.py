"""`python -m volary` is `volary`."""

import sys

if __name__ == "__main__":
    try:
        from volary.cli import main
    except KeyboardInterrupt:
        sys.exit(130)
    main()
