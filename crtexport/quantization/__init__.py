"""Float networks into quantized ones, by libraries in processes of their own."""
