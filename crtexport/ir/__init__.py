"""Neural networks as data: typed tensors, canonical operators, quantization. Knows no file format.
"""
