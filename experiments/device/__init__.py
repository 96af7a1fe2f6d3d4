"""The stages of `python3 -m experiments.gpu`, each in a process of its own, and what runs, records and reports them."""
