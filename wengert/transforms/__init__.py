"""Functions to functions: derivatives in both modes, and the checks of derivatives."""
