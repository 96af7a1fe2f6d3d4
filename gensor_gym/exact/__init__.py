"""Exact results about the analytic model: proved optima with certificates, and values of all states."""

from __future__ import annotations

from gensor_gym.exact.certificate import Certificate, append_certificate, read_certificates
from gensor_gym.exact.optimum import certify

__all__ = ["Certificate", "append_certificate", "certify", "read_certificates"]
