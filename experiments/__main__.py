"""Run a command: `python -m experiments COMMAND ..` is `gensor COMMAND ..`. Without a command, list all commands."""

from experiments.entry import main

if __name__ == "__main__":
    main()
