"""The user's disk cache: folders (`folders`), ownership (`owned`), small JSON files (`jsons`), texts of results (`texts`).

Keys of cached results have the digest of this package's sources (`sources`).

Other modules fill it: `codegen.runtime.compile` with libraries, `graph.compiled` with Numba's functions, `measure.records` with
stores.
"""
