"""The mutations, all written before the tests were reorganised.

Rules, model, generators, worker and statistics have four each. Row nests, chains, networks, front ends, environments, tensor
cores, exports and the store have twelve together.

A mutation is located by its text, which occurs exactly once in the sources, and not by its path, so that it survives moved files.
The tests expected to catch it are named by the stem of their file for the same reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SOURCES = ("gensor_gym", "agents", "experiments")
OWN = ("mutations",)
"""Packages that are never mutated, because they quote the texts of the mutations."""
KINDS = ("rules", "model", "generators", "worker", "statistics", "fused", "networks", "environments", "tensor cores", "kept")


@dataclass(frozen=True)
class Mutation:
    """A fault to plant: the text `old`, which occurs once in the sources, is replaced by `new`."""

    name: str
    kind: str
    """One of KINDS."""
    fault: str
    """Description of the fault in the program once it is planted."""
    old: str
    new: str
    tests: tuple[str, ...]
    """Stems of the test files expected to catch it (`stem::test` for a single test), the most likely first."""

    def place(self, root: Path) -> Path:
        """Return the path, relative to `root`, of the file that contains the text `old`.

        Raise ValueError if the text does not occur exactly once.
        """
        found = [path for path in sources(root) for _ in range(path.read_text(encoding="utf-8").count(self.old))]
        if len(found) != 1:
            where = ", ".join(str(path.relative_to(root)) for path in found) or "nowhere"
            raise ValueError(f"mutation {self.name!r}: {self.old!r} stands {len(found)} times ({where}), expected once")
        return found[0].relative_to(root)

    def files(self, root: Path) -> list[str]:
        """Return the arguments that make pytest run the mutation's tests, relative to `root`.

        Raise ValueError if not exactly one test file has a name.
        """
        parts = [name.partition("::") for name in self.tests]
        return [f"{_only(root, stem).relative_to(root)}{mark}{test}" for stem, mark, test in parts]


def sources(root: Path) -> list[Path]:
    """Return the paths of all modules that may be mutated, below `root`."""
    paths = (path for package in SOURCES for path in sorted((root / package).rglob("*.py")))
    return [path for path in paths if path.relative_to(root).parts[1] not in OWN]


def _only(root: Path, stem: str) -> Path:
    found = sorted((root / "tests").rglob(f"{stem}.py"))
    if len(found) != 1:
        raise ValueError(f"{len(found)} files of tests are called {stem}.py, expected one")
    return found[0]


MUTATIONS = (
    Mutation("a block of all threads", "rules", "a block with as many threads as the hardware allows is refused: off by one",
             "if threads > ints[THREADS_BLOCK] or", "if threads >= ints[THREADS_BLOCK] or", ("test_graph_masks",)),
    Mutation("a task tile of twice the room", "rules", "a CPU's task tile may be twice as large as the floor of its limit",
             "max(ints[L3_BYTES] // ints[UNITS], 4 * ints[L2_BYTES])", "max(ints[L3_BYTES] // ints[UNITS], 8 * ints[L2_BYTES])",
             ("test_graph_masks", "test_graph")),
    Mutation("growth without shared memory", "rules", "the mask forgets that longer steps of a reduction take shared memory",
             "risks = SHARED | SPLIT if reduces else SHARED | REGISTERS", "risks = SPLIT if reduces else SHARED | REGISTERS",
             ("test_graph_masks", "test_graph")),
    Mutation("virtual threads short of the tile", "rules", "virtual threads never reach the register tile: off by one",
             "while 1 <= candidate <= tile:", "while 1 <= candidate < tile:", ("test_graph_masks", "test_graph")),
    Mutation("parts of a split read once", "model", "the second kernel of a split reduction is charged half its bytes",
             "# partial sums have 4 bytes for every output type\n    partial = 2.0",
             "# partial sums have 4 bytes for every output type\n    partial = 1.0",
             ("test_cost_gpu::test_the_second_kernel_writes_and_reads_every_part",
              "test_exact_optimum::test_the_floor_is_below_every_completion")),
    Mutation("traffic of one step", "model", "bytes asked of L2 are those of a single step of the reduction",
             "asked = per_step * steps * blocks", "asked = per_step * blocks",
             ("test_golden::test_dynamics_are_those_of_the_version", "test_cost_gpu")),
    Mutation("cores never idle", "model", "tasks that do not divide by the cores cost nothing on a CPU",
             "imbalance = math.ceil(tasks / units) * units / tasks", "imbalance = 1.0",
             ("test_cost_cpu", "test_golden::test_dynamics_are_those_of_the_version")),
    Mutation("registers without partitions", "model", "occupancy hands out registers over the whole multiprocessor",
             "int(PARTITIONS * int(registers_per_unit / (PARTITIONS * per_warp)) / warps))",
             "registers_per_unit // per_warp // warps)",
             ("test_hardware", "test_graph_schedule::test_resident_blocks_by_hand")),
    Mutation("no barrier after a step", "generators", "CUDA: the next tiles are stored while other threads still read the last",
             "if copies and (plan.steps > 1 or plan.exchange_bytes):", "if copies and plan.exchange_bytes:",
             ("test_codegen_cuda::test_random_schedules_are_right",)),
    Mutation("a copy too many under way", "generators", "CUDA: the wait for asynchronous copies leaves one more unfinished",
             "wait_for_copies<{plan.stages - 2}>", "wait_for_copies<{plan.stages - 1}>",
             ("test_codegen_cuda_pipeline::test_pipelines_are_right",)),
    Mutation("one thread past the output", "generators", "CUDA: the second kernel of a split goes one element too far",
             "if (element >= {size}) return;", "if (element > {size}) return;",
             ("test_codegen_cuda::test_no_knob_value_leaves_its_memory", "test_codegen_cuda::test_random_schedules_are_right")),
    Mutation("a tail that runs over", "generators", "C: the vector part of a copy of columns goes on past the last whole vector",
             "for (; i + {w} <= count; i += {w}) transpose_{w}", "for (; i < count; i += {w}) transpose_{w}",
             ("test_codegen_c_memory::test_tensors_between_guard_pages", "test_codegen_c::test_random_schedules",
              "test_codegen_c_memory::test_sanitizers_find_nothing")),
    Mutation("NaN passes", "worker", "verification takes an output of NaN for right",
             "wrong = ~(np.abs(output.astype(np.float64) - self.reference) <= self.bound)",
             "wrong = np.abs(output.astype(np.float64) - self.reference) > self.bound",
             ("test_measure_attacks::test_attack_is_caught",)),
    Mutation("a crash is OK", "worker", "a trial whose worker died is reported as a time",
             "return Measurement(loss.status, error=str(loss), digest=trial.kernel.digest)",
             "return Measurement(Status.OK, (1.0,), error=str(loss), digest=trial.kernel.digest)",
             ("test_env_cuda::test_a_failure_is_a_status_and_the_environment_goes_on",
              "test_measure_pool::test_faults_at_random")),
    Mutation("a second writer", "worker", "two processes may write the journal of one folder at a time",
             "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)", "fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)",
             ("test_experiments_compare::test_two_processes_do_not_write_to_one_folder",)),
    Mutation("one trial more", "worker", "a budget of n trials lets n + 1 through",
             "if len(fresh) >= left:", "if len(fresh) > left:",
             ("test_measure_session::test_batch_is_cut_to_the_budget_and_the_next_call_raises",)),
    Mutation("tails of one side", "statistics", "the interval of a paired ratio leaves out 5 percent on either side, not in all",
             "low, high = np.quantile(medians, [0.5 - confidence / 2, 0.5 + confidence / 2])",
             "low, high = np.quantile(medians, [1 - confidence, confidence])",
             ("test_measure_numbers",)),
    Mutation("Holm out of order", "statistics", "an adjusted p value may be smaller than that of a smaller p value",
             "highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[at]))",
             "highest = min(1.0, (len(p_values) - rank) * p_values[at])", ("test_statistics",)),
    Mutation("tasks are not drawn", "statistics", "the bootstrap draws seeds alone, as if there were no other tasks",
             "task = rng.integers(0, tasks, size=(tasks, 1))", "task = np.arange(tasks)[:, None]",
             ("test_identical::test_every_item_is_as_recorded",)),
    Mutation("a test of one side", "statistics", "Welch's test calls a kernel faster at twice the level it was given",
             "stdtrit(freedom, 1 - level / 2)", "stdtrit(freedom, 1 - level)",
             ("test_agents_plain::test_alike_kernels_are_called_faster_at_half_the_level",
              "test_agents_plain::test_a_faster_kernel_is_told_from_noise")),
    Mutation("a sum of another maximum", "fused", "a row nest's running sum is not scaled when its running maximum grows",
             'f"{self._sum} = {self._sum} * exp_{w}({self._base} - {grown}) + {added};"',
             'f"{self._sum} = {self._sum} + {added};"',
             ("test_gir_online", "test_gir_kernels")),
    Mutation("rows past a block", "fused", "the nest of a chain works on whole groups of rows, past the last row of a block",
             "whole = rows // together * together", "whole = rows", ("test_chain_kernels", "test_panels")),
    Mutation("an output over its input", "networks", "a value may lie where its kernel still reads another: liveness off by one",
             "busy = (first <= life.last) & (last >= life.first)", "busy = (first < life.last) & (last > life.first)",
             ("test_arena", "test_networks_run")),
    Mutation("an addend before the factor", "networks", "folding leaves a bias unscaled when a factor of channels follows it",
             "chain.factor, chain.addend = chain.factor * vector, chain.addend * vector",
             "chain.factor, chain.addend = chain.factor * vector, chain.addend",
             ("test_networks_run::test_a_factor_after_a_bias_goes_into_the_weights",)),
    Mutation("a node in two pieces", "networks", "a plan that computes a node twice is legal",
             "if sorted(owned) != sorted(needed):", "if set(owned) != set(needed):",
             ("test_plans::test_a_node_is_in_one_piece",)),
    Mutation("a variance of n", "networks", "the default variance is divided by n, torch's by n - 1",
             "- (1 if correction is None else correction)", "- (0 if correction is None else correction)",
             ("test_coverage::test_against_torch",)),
    Mutation("a move with the last step", "environments", "after an illegal action with one step left more than `stop` is legal",
             "fill_remaining(scalars, ints[task], obs)\n    if scalars[REMAINING] <= 1:",
             "fill_remaining(scalars, ints[task], obs)\n    if scalars[REMAINING] < 1:", ("test_env_process", "test_env")),
    Mutation("an observation of the last episode", "environments", "NEXT_STEP: an episode's first observation is the last one's",
             "            observed[skip] = self._obs[skip]\n", "", ("test_env_vector",)),
    Mutation("one step of several axes", "tensor cores", "mma.sync: operands of two stepping reduce axes move on as with one",
             "* plan.block[moving[0]] if len(moving) == 1 else 0", "* plan.block[moving[0]] if moving else 0",
             ("test_codegen_mma_windows", "test_codegen_mma")),
    Mutation("a run stored past the end", "tensor cores", "wgmma: all of a run is stored where its first column is inside",
             'f"{total([(1, index)], first)} < {limit}" if index in limited', 'f"{index} < {limit}" if index in limited',
             ("test_identical::test_every_item_is_as_recorded",)),
    Mutation("a workspace that never grows", "kept", "an exported library gives a larger kernel the first one's workspace",
             "    if (bytes > kept_bytes) {\n", "    if (kept_bytes == 0) {\n",
             ("test_codegen_export_sanitized::test_a_larger_kernel_has_a_larger_workspace",)),
    Mutation("an imported trial before an own", "kept", "an imported trial replaces one that was measured here",
             "return record.created > stored.created if old == new else old",
             "return record.created > stored.created if old == new else new",
             ("test_measure_store::test_what_was_measured_here_stays",)),
)  # fmt: skip
