"""The user's disk cache: folders (`folders`), ownership checks (`owned`), small JSON files (`jsons`).

Other modules fill it: `codegen.runtime.compile` with libraries, `graph.compiled` with Numba's functions, `measure.records` with
stores.
"""
