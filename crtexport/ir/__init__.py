"""What a network is: typed tensors, canonical operators, quantization. Knows no file format."""
