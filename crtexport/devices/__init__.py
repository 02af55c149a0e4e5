"""Programs of accelerators as data: images for the device, containers for tools."""
