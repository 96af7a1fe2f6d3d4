"""Parts that commands share: arguments, errors, stopping. `cli.kernels` finds and exports kernels."""
