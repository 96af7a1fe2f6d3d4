"""Functions of ATen that are composed of many others: error, gamma and Bessel functions, bits."""

from gensor_gym.frontends.aten.functions import bessel, bits, errors, gamma

__all__ = ["bessel", "bits", "errors", "gamma"]
