"""Frozen suites of tasks, budgets and seeds, by version: `suites.get("v1")`."""

from gensor_gym.suites.suite import Agent, Suite, SuiteChanged, SuiteTask, Track, get, names

__all__ = ["Agent", "Suite", "SuiteChanged", "SuiteTask", "Track", "get", "names"]
