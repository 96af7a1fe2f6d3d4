"""Generators of C and CUDA for row nests, from the instruction graphs of `gensor_gym.gir`.

The generated code calls scalar functions such as exp from `codegen.c.micro.functions`, or on GPUs from `cuda.prelude`.
"""
