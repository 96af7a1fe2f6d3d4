"""Networks of other libraries as `networks.Network`: one module for each library, the only one that imports it."""
