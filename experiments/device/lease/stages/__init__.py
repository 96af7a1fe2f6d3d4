"""Stages of a lease, each by the function `run` of its module; `run.STAGES` has their order and shares."""
