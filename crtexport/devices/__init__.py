"""Accelerator programs as data: images for the device, containers for tools."""
