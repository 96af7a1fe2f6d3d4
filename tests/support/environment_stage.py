"""Stage `environment` on a device that stands in, a process of its own.

`python -m tests.support.environment_stage FOLDER SECONDS` runs it. Torch's arrays of the host count as those of the device.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

from tests.support import cuda_stand_in

sys.path.append(str(cuda_stand_in.FOLDER))

import cupy  # noqa: E402, F401  # the stand-in, before anything asks for CuPy
import torch  # noqa: E402

from experiments.device.context import Context  # noqa: E402
from experiments.device.report import markdown  # noqa: E402
from experiments.device.stages import environment  # noqa: E402
from gensor_gym.codegen.runtime import cuda_arrays  # noqa: E402


def main(folder: str, seconds: float) -> None:
    """Run it, with small operators; print its digest and what the summary says."""
    drawn = torch.randn

    def on_host(*shape: Any, **named: Any) -> torch.Tensor:
        return drawn(*shape, **{**named, "device": "cpu"})

    torch.randn = on_host
    torch.cuda.current_stream = lambda device: SimpleNamespace(cuda_stream=0)
    cuda_arrays.lies_on_device = lambda value: True
    environment.OPERATOR = 'gemm(m=128, n=128, k=64, dtype="float16")'
    environment.EPISODES, environment.TRIALS, environment.ENVS, environment.COMPILE_SECONDS = 2, 2, 8, 60.0
    environment.TRIAL_SECONDS = 30.0
    result = environment.run(Context(folder, f"{folder}/scratch", "run", seconds, "h100", 0))
    stage = {"status": "done", "seconds": 1.0, "attempts": 1, "error": "", "result": result}
    text = markdown({"machine": {}, "hardware": "h100", "stages": {"environment": stage}})
    print(json.dumps({"result": result, "text": text}))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
