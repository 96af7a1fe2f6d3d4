"""Clock, temperature, power and energy of a GPU during timing, from the driver's management library (NVML) through ctypes."""

from __future__ import annotations

import ctypes

_CLOCK_SM = 1
_TEMPERATURE_GPU = 0


class Nvml:
    """Reads clock, temperature and power of one GPU. A reading is missing without the library or the permission.

    No setting is changed.
    """

    def __init__(self, pci_bus_id: str) -> None:
        self._library: ctypes.CDLL | None = None
        self._handle = ctypes.c_void_p()
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        if library.nvmlInit_v2() != 0:
            return
        if library.nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id.encode(), ctypes.byref(self._handle)) == 0:
            self._library = library

    def read(self) -> dict[str, object]:
        """Return the values of `sm_clock_mhz`, `temperature_c` and `power_w` that can be read now, by name."""
        if self._library is None:
            return {}
        value = ctypes.c_uint()
        readings: dict[str, object] = {}
        if self._library.nvmlDeviceGetClockInfo(self._handle, _CLOCK_SM, ctypes.byref(value)) == 0:
            readings["sm_clock_mhz"] = value.value
        if self._library.nvmlDeviceGetTemperature(self._handle, _TEMPERATURE_GPU, ctypes.byref(value)) == 0:
            readings["temperature_c"] = value.value
        if self._library.nvmlDeviceGetPowerUsage(self._handle, ctypes.byref(value)) == 0:
            readings["power_w"] = value.value / 1000.0
        return readings

    def joules(self) -> float | None:
        """Return the energy that the GPU has used since the driver was loaded; None if it cannot be read (before Volta)."""
        total = ctypes.c_ulonglong()
        if self._library is None or self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle, ctypes.byref(total)) != 0:
            return None
        return total.value / 1000.0
