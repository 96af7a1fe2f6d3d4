"""Cache of converted modules: the digest that identifies a module, and its network in the user's cache."""
