"""What ran, remembered: the backward walk, gradients, hooks and modes."""
