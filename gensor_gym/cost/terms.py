"""Names of the terms of a predicted time. Every kind of hardware has the same terms; a term's meaning depends on the kind."""

from __future__ import annotations

TERMS = ("arithmetic", "issue", "staging", "cache", "dram", "exposed", "tail", "launch")
"""Names of the terms, in order. On a GPU they are the times of FMA pipes; issue slots; shared-memory wavefronts; L2 traffic; DRAM
traffic; exposed latency; incomplete waves; launches. On a CPU: FMA ports; load ports; packing; L2 and L3 traffic; DRAM traffic;
accumulator chains and calls of the micro-kernel; imbalance of threads; fork and join."""

ARITHMETIC, ISSUE, STAGING, CACHE_TERM, DRAM, EXPOSED, TAIL, LAUNCH_TERM = range(len(TERMS))
NUM_TERMS = len(TERMS)
