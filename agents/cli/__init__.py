"""Code that commands share: arguments, errors, stopping."""
