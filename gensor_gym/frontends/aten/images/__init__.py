"""Rules for operations of ATen on signals, images and volumes: convolutions, pooling, resizing."""

from gensor_gym.frontends.aten.images import largest, resampled, volumes, windows

__all__ = ["largest", "resampled", "volumes", "windows"]
