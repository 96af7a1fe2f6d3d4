"""The project's experiments and their commands; run one by `python -m experiments COMMAND`."""
