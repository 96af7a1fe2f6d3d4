"""`python -m experiments COMMAND ..` is `gensor COMMAND ..`; without a command it lists them."""

from experiments.entry import main

if __name__ == "__main__":
    main()
