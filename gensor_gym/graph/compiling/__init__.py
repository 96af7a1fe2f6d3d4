"""How functions are compiled: for Python to call, as text for others, once for many; and the line that says so when it lasts."""
