"""Which operators autocast casts, and to what: PyTorch's lists for devices in general (``ATen/autocast_mode.h``).

What is not listed runs in the dtypes that it is given, which promotion settles where they differ.
"""

from typing import Any

from wengert.core.casting import GIVEN, LOWER, REFUSED_IN_FLOAT16, SINGLE, SINGLE_UNLESS_DTYPE, WIDEST

__all__ = ["RULES"]

# Products: nearly all the work of a network, whose sums the kernels keep in float32.
_LOWER = """
    addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d
    conv_transpose3d convolution einsum gru_state linalg_multi_dot linalg_vecdot linear lstm_layer lstm_output lstm_state
    matmul mm mv prelu scaled_dot_product_attention
"""

# Functions that overflow or lose what matters: powers and logarithms, normalisations, distances, losses.
_SINGLE = """
    acos asin cosh erfinv exp expm1 log log10 log1p log2 logsumexp pow reciprocal rsqrt sinh softplus square tan
    group_norm layer_norm native_layer_norm rms_norm frobenius_norm nuclear_norm renorm
    cdist cosine_similarity dist pairwise_distance pdist
    interpolate upsample upsample_bilinear upsample_nearest
    binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy ctc_loss gaussian_nll_loss hinge_embedding_loss
    huber_loss kl_div l1_loss margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss
    multilabel_soft_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss
    triplet_margin_with_distance_loss
"""

# Long sums and products, which are given a dtype where they must have another one.
_SINGLE_UNLESS_DTYPE = """
    cumprod cumsum linalg_matrix_norm linalg_vector_norm log_softmax norm prod softmax softmin sum
"""

# Operators of several tensors that want one dtype.
_WIDEST = """
    addcdiv addcmul atan2 bilinear cross dot grid_sample grid_sampler grid_sampler_2d grid_sampler_3d index_put linalg_cross
    scatter_add tensordot vdot
"""

# Operators that PyTorch does not make of others, as it is done here: what they are made of is not cast either.
_GIVEN = """
    affine_grid batch_norm instance_norm native_batch_norm native_group_norm histogram histogramdd linalg_householder_product
    linalg_inv_ex linalg_ldl_solve linalg_lstsq linalg_lu_solve linalg_solve_ex lu_solve nansum orgqr ormqr trace
"""

RULES: dict[str, Any] = {
    **dict.fromkeys(_LOWER.split(), LOWER),
    **dict.fromkeys(_SINGLE.split(), SINGLE),
    **dict.fromkeys(_SINGLE_UNLESS_DTYPE.split(), SINGLE_UNLESS_DTYPE),
    **dict.fromkeys(_WIDEST.split(), WIDEST),
    **dict.fromkeys(_GIVEN.split(), GIVEN),
    "binary_cross_entropy": REFUSED_IN_FLOAT16,
}
