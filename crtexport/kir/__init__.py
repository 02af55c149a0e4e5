"""The loop language: kernels as loops over typed buffers. It knows nothing of neural networks."""
