"""Elementwise functions of ATen computed from many simpler ones: error, gamma and Bessel functions, bitwise functions."""

from gensor_gym.frontends.aten.functions import bessel, bits, errors, gamma

__all__ = ["bessel", "bits", "errors", "gamma"]
