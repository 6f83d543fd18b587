"""Sparse tensors: entries and their positions, in COO and CSR layout. ``torch.sparse``.

``pattern`` says where entries are, ``payload`` what a sparse tensor holds and the two recorded steps into it and out of it;
``rules`` and ``movement`` what operators mean for such tensors; ``rows`` is the lookup whose gradient never makes the table.
"""

from wengert.sparse import create, methods, movement, rows
from wengert.sparse.functions import addmm, log_softmax, mm, sampled_addmm, softmax, sum

__all__ = ["addmm", "create", "log_softmax", "methods", "mm", "movement", "rows", "sampled_addmm", "softmax", "sum"]
