"""The analytic model of a CPU: tiles, copies, caches, the register tile."""
