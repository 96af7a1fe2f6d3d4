"""Graphs of GraphNet, captured from networks of others: compiled, verified and compared with eager torch and Inductor.

GraphNet is arXiv 2510.24035, `git clone https://github.com/PaddlePaddle/GraphNet`. Nothing of it is in this repository.
"""
