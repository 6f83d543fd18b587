"""Datasets, samplers and the loader; public as ``wengert.utils.data`` too. The names are PyTorch's.

Tables (CSV, Arrow, Parquet), folders of pictures and their transforms are here too.
"""

from typing import Any

from wengert.core.registry import MissingNameError
from wengert.data import transforms
from wengert.data.arrow import from_arrow, read_parquet
from wengert.data.collate import default_collate, default_convert
from wengert.data.csv_table import CSVStream, read_csv, scan_csv
from wengert.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from wengert.data.images import ImageFolder
from wengert.data.loader import DataLoader
from wengert.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from wengert.data.schema import Column, schema_from_dict, schema_to_dict
from wengert.data.table import Table, TableDataset
from wengert.data.workers import WorkerInfo, get_worker_info

__all__ = [
    "BatchSampler",
    "CSVStream",
    "ChainDataset",
    "Column",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "ImageFolder",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "Table",
    "TableDataset",
    "TensorDataset",
    "WeightedRandomSampler",
    "WorkerInfo",
    "default_collate",
    "default_convert",
    "from_arrow",
    "get_worker_info",
    "random_split",
    "read_csv",
    "read_parquet",
    "scan_csv",
    "schema_from_dict",
    "schema_to_dict",
    "transforms",
]


def __getattr__(name: str) -> Any:
    raise MissingNameError("module 'wengert.data'", name, __all__)
