"""Code for the instruction graphs of `gensor_gym.gir`.

Functions of numbers, such as exp, are the helpers of `codegen.c.micro.functions`; on GPUs those of `cuda.prelude`.
"""
