"""`python -m experiments.device.sanitize OUT [SECONDS]`: kernels of an archive under NVIDIA's compute-sanitizer.

Two kernels are run, one of them in clusters. Each is the largest kernel of at most `MOST_FLOPS` that no device had run and
whose blocks share all steps (`persistent=2`). A plain program launches each kernel twice; both programs run at the same time.
Every array has its own allocation, so that an access next to it is detected. Times are meaningless here and disturb other
measurements: run it while nothing is timed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiments.device.wheels import use_wheels

if __name__ == "__main__":
    use_wheels()

from agents.runs.files import write_text  # noqa: E402
from experiments.device.archive.packed import Archive, kernel_of, open_archive  # noqa: E402
from gensor_gym import operators  # noqa: E402

SANITIZER = ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")
OPTIONS = ("--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "9")
"""Options of compute-sanitizer. API errors are not reported: the bindings look up missing driver functions, which is no fault."""
SECONDS = 20.0
MOST_FLOPS = 5e9
LAUNCHES = 2
_OPT_IN = 48 * 1024
KINDS: dict[str, Callable[[str], bool]] = {
    "shares": lambda words: "persistent=2" in words and "cluster=2" not in words,
    "shares in clusters": lambda words: "persistent=2" in words and "cluster=2" in words,
}
"""Kind of kernel -> condition on the text of its schedule."""

Row = Mapping[str, Any]


def chosen(archive: Archive) -> dict[str, Row]:
    """Return the kernels to check by kind: the largest of at most `MOST_FLOPS` in the archive that no device had run."""
    rows = [row for row in archive.proposals if row["digest"] in archive.rows and row["group"] == "never_run"]
    size = {row["operator"]: operators.parse(row["operator"]).flops for row in rows}
    fitting = sorted((row for row in rows if size[row["operator"]] <= MOST_FLOPS), key=lambda row: -size[row["operator"]])
    found = {kind: next((row for row in fitting if has(row["schedule"])), None) for kind, has in KINDS.items()}
    return {kind: row for kind, row in found.items() if row is not None}


def sanitize(archive: Archive, folder: Path, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Run the chosen kernels under compute-sanitizer; return a row for each, or no rows without a sanitizer.

    A row has the exit code (0 without a fault, 9 with one) and the end of the output.
    """
    tool = next(filter(None, map(shutil.which, SANITIZER)), None)
    if tool is None:
        return []
    begin, running = time.monotonic(), []
    for number, (kind, row) in enumerate(chosen(archive).items()):
        about = folder / f"sanitized_{number}.json"
        write_text(about, json.dumps({**archive.rows[row["digest"]], "cubin": archive.built(row["digest"]).path}))
        command = [tool, *OPTIONS, sys.executable, "-m", "experiments.device.sanitize", "--launch", str(about)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        running.append(({"kind": kind, "operator": row["operator"], "schedule": row["schedule"]}, process))
    return [{**row, **_ended(process, begin, seconds)} for row, process in running]


def _ended(process: subprocess.Popen[str], begin: float, seconds: float) -> dict[str, Any]:
    """Wait for a process until `seconds` after `begin`, then kill it; return its exit code, output and seconds."""
    try:
        words, _ = process.communicate(timeout=max(0.1, begin + seconds - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        words = process.communicate()[0] + f"\nkilled after {seconds:g} s"
    return {"code": process.returncode, "words": words[-1500:], "seconds": time.monotonic() - begin}


def launch(about: Row) -> None:
    """Launch a kernel, which a row describes, on random inputs `LAUNCHES` times, and wait until it ends."""
    import cupy

    from gensor_gym.codegen.cuda.tensor_map import with_maps
    from gensor_gym.measure.answers.draw import drawn_inputs
    from gensor_gym.operators.types import ARRAY_DTYPE

    cupy.cuda.set_allocator(None)
    kernel = kernel_of(about)
    inputs = [cupy.asarray(array) for array in drawn_inputs(kernel.operator, 0)[0][0]]
    outputs = [cupy.empty(tensor.shape, dtype=ARRAY_DTYPE[tensor.dtype]) for tensor in kernel.operator.outputs]
    workspace = cupy.empty(max(1, -(-kernel.workspace_bytes // 4)), dtype="float32")
    if kernel.cleared_bytes:
        workspace.data.memset(0, kernel.cleared_bytes)
    module = cupy.RawModule(path=about["cubin"])
    arguments = with_maps(kernel.maps, (*inputs, *outputs, workspace))
    for _ in range(LAUNCHES):
        for one in kernel.launches:
            function = module.get_function(one.entry)
            if one.shared_bytes > _OPT_IN:
                function.max_dynamic_shared_size_bytes = one.shared_bytes
            function(one.grid, one.block, arguments, shared_mem=one.shared_bytes)
    cupy.cuda.Device().synchronize()
    print(f"{LAUNCHES} launches of {kernel.operator} ended")


def main(arguments: list[str]) -> int:
    """Check the kernels under the sanitizer, or, with `--launch`, launch one of them; return the exit code."""
    if arguments[0] == "--launch":
        launch(json.loads(Path(arguments[1]).read_text(encoding="utf-8")))
        return 0
    out, seconds = Path(arguments[0]), float(arguments[1]) if arguments[1:] else SECONDS
    rows = sanitize(open_archive(), out.resolve().parent, seconds)
    write_text(out, json.dumps(rows, indent=1) + "\n")
    for row in rows or [{"kind": "nothing", "operator": "no compute-sanitizer, or no such kernel", "code": 1, "words": ""}]:
        print(f"{row['kind']}: {row['operator']}: exit code {row['code']}\n{row['words']}")
    return max([row["code"] != 0 for row in rows], default=1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
