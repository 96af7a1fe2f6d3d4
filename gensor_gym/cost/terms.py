"""The terms of a latency, in seconds. Every kind of hardware has the same terms; a term's meaning depends on the kind."""

from __future__ import annotations

TERMS = ("arithmetic", "issue", "staging", "cache", "dram", "exposed", "tail", "launch")
"""GPU: FMA pipes; issue slots; shared-memory wavefronts; L2 traffic; DRAM traffic; exposed latency; incomplete waves; launches.
CPU: FMA ports; load ports; packing; L2 and L3 traffic; DRAM traffic; accumulator chains and calls of the micro-kernel; imbalance
of threads; fork and join."""

ARITHMETIC, ISSUE, STAGING, CACHE_TERM, DRAM, EXPOSED, TAIL, LAUNCH_TERM = range(len(TERMS))
NUM_TERMS = len(TERMS)
