"""NumPy kernels too long to stand inside an operator's declaration: arrays in, arrays out."""
