"""`python -m volary` is `volary`."""

from volary.cli import main

if __name__ == "__main__":
    main()
