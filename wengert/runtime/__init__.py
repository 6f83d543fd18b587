"""When and where things run: kernels, the memory pool, workers."""
