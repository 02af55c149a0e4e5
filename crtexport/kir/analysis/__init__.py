"""Facts about kernels: what they touch, in which order, and which of them are alike."""
