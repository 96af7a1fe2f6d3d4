"""What commands share: their arguments, errors, ends."""
