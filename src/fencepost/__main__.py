"""`python -m fencepost` is the command `fencepost`."""

from fencepost.cli.main import main

if __name__ == "__main__":
    main()
