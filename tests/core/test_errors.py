"""Nonsense given to everything that is no operator: layers, optimisers, loaders, files. It is refused in words."""

import json

import numpy as np
import pytest

import wengert as wg
from wengert.serialization import from_bytes, to_bytes

nn, optim, data = wg.nn, wg.optim, wg.utils.data
DATASET = [1, 2, 3]


def parameters():
    return [nn.Parameter(wg.ones(2))]


LAYERS = [
    (lambda: nn.Conv2d(None, 4, 2), "in_channels must be an int"),
    (lambda: nn.Conv2d(4, 4, 2, groups="2"), "groups must be an int"),
    (lambda: nn.Conv2d(4, 4, 1.5), "kernel_size must be an int"),
    (lambda: nn.Conv2d(4, 4, b"ab"), "kernel_size must be an int"),
    (lambda: nn.GroupNorm(None, 4), "num_groups must be an int"),
    (lambda: nn.LayerNorm(None), "normalized_shape must be an int"),
    (lambda: nn.Bilinear(None, 1, 1), "in1_features must be an int"),
    (lambda: nn.Embedding(3, 2, padding_idx="a"), "padding_idx must be an int"),
    (lambda: nn.Embedding(3, 2, _weight="a"), "weight must be a tensor"),
    (lambda: nn.Dropout(None), "p must be a number"),
    (lambda: nn.Hardtanh(None), "min_val must be a number"),
    (lambda: nn.TripletMarginLoss(margin=None), "margin must be a number"),
    (lambda: nn.AdaptiveLogSoftmaxWithLoss(3, None, [2]), "n_classes must be an int"),
    (lambda: nn.ModuleDict("abc"), r"takes a dictionary or \(name, value\) pairs"),
    (lambda: nn.ParameterDict([1]), r"takes a dictionary or \(name, value\) pairs"),
    (lambda: nn.BatchNorm1d(4)(None), r"BatchNorm1d\(\): the input must be a tensor, got None"),
    (lambda: nn.Softmax2d()("x"), r"Softmax2d\(\): the input must be a tensor, got 'x'"),
]
OPTIMISERS = [
    (lambda: optim.SGD(None), "an optimizer takes parameters"),
    (lambda: optim.SGD([{}]), "under 'params'"),
    (lambda: optim.SGD(parameters(), lr="x"), "SGD: lr must be a number, got 'x'"),
    (lambda: optim.Adam(parameters(), betas=None), "Adam: betas must be two numbers"),
    (lambda: optim.Adam(parameters(), betas=(0.9,)), "Adam: betas must be two numbers"),
    (lambda: optim.Adam(parameters(), amsgrad="yes"), "Adam: amsgrad must be True or False"),
    (lambda: optim.Rprop(parameters(), step_sizes=1.5), "Rprop: step_sizes must be two numbers"),
    (lambda: optim.ASGD(parameters(), t0=None), "ASGD: t0 must be a number"),
    (lambda: optim.Adadelta(parameters(), rho=None), "Adadelta: rho must be a number"),
    (lambda: optim.SGD(parameters()).step("x"), r"step\(\) takes a function"),
    (lambda: optim.SGD(parameters()).load_state_dict(None), "takes a dictionary"),
    (lambda: optim.lr_scheduler.StepLR(None, 2), "takes an .*ptimizer"),
    (lambda: optim.lr_scheduler.StepLR(optim.SGD(parameters()), 2, last_epoch="x"), "last_epoch must be an int"),
]
DATA = [
    (lambda: data.TensorDataset(None), "TensorDataset takes tensors"),
    (lambda: data.ConcatDataset([1]), "datasets with a length"),
    (lambda: data.ConcatDataset(None), "takes datasets in a list"),
    (lambda: data.random_split(None, [1]), "takes a dataset with a length"),
    (lambda: data.random_split(DATASET, "ab"), "takes lengths or shares"),
    (lambda: data.DataLoader(None), "takes a dataset with a length"),
    (lambda: data.DataLoader(DATASET, sampler=1.5), "sampler must give indices"),
    (lambda: data.DataLoader(DATASET, collate_fn="x"), "collate_fn must be a function"),
    (lambda: data.default_collate({}), "samples of a batch in a list"),
    (lambda: data.default_collate([[1], 1]), "must be of one kind"),
]
FILES = [
    (lambda: wg.save(1, None), "takes a path or an open file"),
    (lambda: wg.load(None), "takes a path or an open file"),
    (lambda: wg.save_file(None, "x"), "tensors must be a dictionary"),
    (lambda: wg.save_file({}, None), r"save_file\(\) takes a path"),
    (lambda: to_bytes({}, metadata="x"), "metadata must be a dictionary"),
    (lambda: from_bytes(2**40), "takes bytes"),
]


@pytest.mark.parametrize(("call", "message"), LAYERS + OPTIMISERS + DATA + FILES)
def test_a_wrong_type_is_refused_in_words(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_an_incomplete_state_is_refused():
    with pytest.raises(ValueError, match="misses state, param_groups"):
        optim.SGD(parameters()).load_state_dict({})


def test_a_loader_starts_no_army():
    with pytest.raises(ValueError, match="more threads than"):
        data.DataLoader(DATASET, num_workers=2**40)
    with pytest.raises(ValueError, match="timeout must be a number"):
        data.DataLoader(DATASET, timeout=None)


@pytest.mark.parametrize(
    "structure",
    ['{"dict": 1}', '{"tensor": "nope"}', '{"tensor": [1]}', "{}", '{"list": 5}', '{"dict": [[1]]}', "not json",
     '{"dict": [[[1], 2]]}'],
)  # fmt: skip
def test_a_damaged_structure_is_refused(structure, tmp_path):
    path = tmp_path / "damaged.safetensors"
    header = json.dumps({"__metadata__": {"wengert": structure}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ValueError, match="is damaged"):
        wg.load(path)


def test_every_cut_of_a_file_is_refused(tmp_path):
    path = tmp_path / "cut.safetensors"
    wg.save({"a": wg.ones(3), "b": [1, None]}, path)
    whole = path.read_bytes()
    for length in np.linspace(0, len(whole) - 1, 40, dtype=int):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="not a complete safetensors file"):
            wg.load(path)


def test_the_errors_of_a_users_own_module_are_not_rewritten():
    class Wrong(nn.Module):
        def forward(self, x):
            return x.shape

    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'shape'"):
        Wrong()(None)
