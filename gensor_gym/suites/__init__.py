"""Frozen suites of tasks, budgets and seeds, by version: `suites.get("v1")`."""

from gensor_gym.suites.suite import Suite, SuiteChanged, SuiteTask, Track, get, names

__all__ = ["Suite", "SuiteChanged", "SuiteTask", "Track", "get", "names"]
