"""Helpers for training: gradient clipping, parameters as one vector, sequences, parametrizations, pruning, fusion."""

from wengert.nn.utils import parametrizations, parametrize, prune, rnn, stateless
from wengert.nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from wengert.nn.utils.clipper import GradClipper
from wengert.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from wengert.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from wengert.nn.utils.init import skip_init
from wengert.nn.utils.memory_format import convert_conv2d_weight_memory_format, convert_conv3d_weight_memory_format
from wengert.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from wengert.nn.utils.weight_norm import remove_weight_norm, weight_norm

__all__ = [
    "GradClipper", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "convert_conv2d_weight_memory_format",
    "convert_conv3d_weight_memory_format", "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval",
    "fuse_linear_bn_weights", "get_total_norm", "parameters_to_vector", "parametrizations", "parametrize", "prune",
    "remove_spectral_norm", "remove_weight_norm", "rnn", "skip_init", "spectral_norm", "stateless", "vector_to_parameters",
    "weight_norm",
]  # fmt: skip
