"""A run on a device in virtual time: what it would get done, as it was and as it is."""
