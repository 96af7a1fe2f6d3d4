"""Elementwise functions of ATen that take many simpler functions: error, gamma and Bessel functions, bits."""

from gensor_gym.frontends.aten.functions import bessel, bits, errors, gamma

__all__ = ["bessel", "bits", "errors", "gamma"]
