"""Panels (a product with a row nest after it) and chains (two products with a row nest between, such as attention)."""
