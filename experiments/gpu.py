"""`python -m experiments.gpu`: see `experiments.device.gpu`.

Wheels that travelled come on the path first: the command line imports gymnasium, which a GPU machine lacks.
"""

from experiments.device.wheels import use_wheels

if __name__ == "__main__":
    use_wheels()

from experiments.entry import run_as_main  # noqa: E402

run_as_main(__name__, __spec__)
