"""A Model Context Protocol server, through which agents that use tools play `gensor_gym/Kernel-v0`: `gensor mcp`."""
