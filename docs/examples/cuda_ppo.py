"""MaskablePPO with a kernel's time as reward: `python docs/examples/cuda_ppo.py h100 cuda`, or without a GPU `h100 analytic`."""

import sys

from sb3_contrib import MaskablePPO

from gensor_gym.env.sb3 import make_writing_sb3

hardware, backend, rounds = (*sys.argv[1:], *("h100", "cuda", "40")[len(sys.argv) - 1 :])
operator = 'gemm(m=1024, n=1024, k=1024, dtype="float16")'
envs = make_writing_sb3(32, operator=operator, hardware=hardware, backend=backend, space="extended", threads=1)
steps = 21  # decisions in an episode of this operator, so that a rollout is one episode of every environment
model = MaskablePPO("MlpPolicy", envs, n_steps=steps, batch_size=168, gamma=1.0, learning_rate=3e-3, device="cpu", verbose=1)
model.learn(32 * steps * int(rounds))
envs.close()
