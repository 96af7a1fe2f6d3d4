"""What is kept on the user's disk between runs: which folders (`folders`), who may have written there (`owned`), notes (`jsons`).

What lies in them is made by others: libraries by `codegen.runtime.compile`, Numba's functions by `graph.compiled`, stores by
`measure.records`.
"""
