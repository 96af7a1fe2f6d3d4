"""The user's disk cache: its folders (`folders`), ownership checks (`owned`), notes (`jsons`).

Other modules fill it: libraries by `codegen.runtime.compile`, Numba's functions by `graph.compiled`, stores by `measure.records`.
"""
