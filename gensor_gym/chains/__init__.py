"""Two families of fused operators with matrix products: chains and panels.

A chain is two products with a row nest (loops over rows and columns) between them, such as attention. A panel is one product with
a row nest after it.
"""
