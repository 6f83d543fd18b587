"""What a script asks before it starts: kinds of values, dtypes, devices, PyTorch's oldest names."""

import numpy as np
import pytest

import wengert as wg

ANSWERS = [
    ("is_tensor(tensor)", lambda: wg.is_tensor(wg.ones(2)), True),
    ("is_tensor(parameter)", lambda: wg.is_tensor(wg.nn.Parameter(wg.ones(2))), True),
    ("is_tensor(array)", lambda: wg.is_tensor(np.ones(2)), False),
    ("numel", lambda: wg.numel(wg.zeros(2, 0, 3)), 0),
    (
        "is_signed",
        lambda: [wg.is_signed(wg.ones(1, dtype=d)) for d in (wg.uint8, wg.int8, wg.bool)],
        [False, True, False],
    ),
    ("is_same_size", lambda: wg.is_same_size(wg.zeros(2, 3), wg.zeros(3, 2)), False),
    ("typename(tensor)", lambda: wg.typename(wg.ones(1, dtype=wg.int64)), "wengert.LongTensor"),
    ("typename(number)", lambda: wg.typename(3), "int"),
    ("typename(module)", lambda: wg.typename(wg.nn.Linear(1, 1)), "wengert.nn.linear.Linear"),
    ("result_type(dims, 0-d)", lambda: wg.result_type(wg.ones(2, dtype=wg.float16), wg.tensor(2.0)), wg.float16),
    ("result_type(int, float)", lambda: wg.result_type(wg.ones(2, dtype=wg.int8), 1.5), wg.float32),
    ("result_type(numbers)", lambda: wg.result_type(1, 2j), wg.complex64),
    ("can_cast up", lambda: wg.can_cast(wg.int64, wg.float16), True),
    ("can_cast down", lambda: wg.can_cast(wg.float16, wg.int64), False),
    ("broadcast_shapes", lambda: wg.broadcast_shapes((2, 1), 3, ()), (2, 3)),
    ("get_default_device", lambda: wg.get_default_device(), wg.device("cpu")),
    ("cuda.is_available", lambda: wg.cuda.is_available(), False),
    ("cuda.device_count", lambda: wg.cuda.device_count(), 0),
    ("backends.mps", lambda: wg.backends.mps.is_available(), False),
    ("get_device", lambda: wg.ones(1).get_device(), -1),
    ("layout", lambda: wg.ones(1).layout, wg.strided),
]


@pytest.mark.parametrize(("ask", "answer"), [case[1:] for case in ANSWERS], ids=[case[0] for case in ANSWERS])
def test_a_question_is_answered(ask, answer):
    assert ask() == answer


def test_result_type_is_what_an_operator_gives():
    values = [wg.ones(2, dtype=d) for d in (wg.bool, wg.int32, wg.bfloat16, wg.float64)] + [wg.tensor(1.0), 2, 2.5]
    for a in values[:5]:
        for b in values:
            assert wg.result_type(a, b) is (a + b).dtype


MISTAKES = [
    (lambda: wg.numel([1, 2]), TypeError, "numel.. takes a tensor, got list"),
    (lambda: wg.result_type("a", wg.ones(1)), TypeError, "number"),
    (lambda: wg.broadcast_shapes((2,), (3,)), RuntimeError, "broadcast_shapes"),
    (lambda: wg.set_default_device("cuda"), RuntimeError, "'cuda' is not available"),
    (lambda: wg.ones(1).cuda(), RuntimeError, "'cuda' is not available"),
    (lambda: wg.cuda.Stream, AttributeError, "no GPU"),
    (lambda: wg.ones(2, 2).size(2), IndexError, "dim=2 is out of range"),
    (lambda: wg.ones(2, 2).stride(-3), IndexError, "dim=-3 is out of range"),
    (lambda: wg.ones(1).clone(memory_format="rows"), TypeError, "contiguous_format"),
    (lambda: wg.ones(1).is_contiguous(memory_format="rows"), TypeError, "contiguous_format"),
    (lambda: wg.nn.Linear(1, 1).to(memory_format="rows"), TypeError, "contiguous_format"),
    (lambda: wg.Tensor(2.5), TypeError, "sizes or one sequence"),
    (lambda: wg.Tensor([1.0], device="cuda"), RuntimeError, "'cuda' is not available"),
    (lambda: wg.autograd.Variable([1.0]), TypeError, "takes a tensor, got list"),
]


@pytest.mark.parametrize(("call", "error", "text"), MISTAKES)
def test_a_mistake_is_named(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_the_legacy_constructor_takes_sizes_or_data():
    assert wg.Tensor(2, 3).shape == wg.Tensor(wg.Size((2, 3))).shape == (2, 3)
    assert wg.Tensor(4).shape == (4,)
    assert wg.Tensor().shape == (0,)
    assert wg.Tensor((2, 3)).tolist() == wg.Tensor(np.array([2, 3])).tolist() == [2.0, 3.0]
    source = wg.ones(2)
    wg.Tensor(source).zero_()
    assert source.tolist() == [1.0, 1.0]


def test_the_legacy_constructor_follows_the_default_dtype():
    wg.set_default_dtype(wg.float64)
    try:
        assert wg.Tensor([1]).dtype is wg.float64
    finally:
        wg.set_default_dtype(wg.float32)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("BoolTensor", wg.bool), ("ByteTensor", wg.uint8), ("CharTensor", wg.int8), ("ShortTensor", wg.int16),
     ("IntTensor", wg.int32), ("LongTensor", wg.int64), ("HalfTensor", wg.float16), ("BFloat16Tensor", wg.bfloat16),
     ("FloatTensor", wg.float32), ("DoubleTensor", wg.float64)],
)  # fmt: skip
def test_a_legacy_type_makes_recognises_and_names_its_tensors(name, dtype):
    kind = getattr(wg, name)
    made = kind([0, 1])
    assert made.dtype is dtype
    assert kind(2, 3).shape == (2, 3)
    assert isinstance(made, kind)
    assert not isinstance(wg.ones(1, dtype=wg.complex64), kind)
    assert made.type() == repr(kind) == f"wengert.{name}"
    assert wg.ones(1).type(kind).dtype is wg.ones(1).type(f"torch.{name}").dtype is dtype


def test_a_variable_is_a_leaf_on_the_same_memory():
    x = wg.ones(2, requires_grad=True) * 2
    v = wg.autograd.Variable(x, requires_grad=True)
    assert v.is_leaf
    assert v.data_ptr() == x.data_ptr()
    assert isinstance(x, wg.autograd.Variable)
    assert not wg.autograd.Variable(x).requires_grad


def test_dir_lists_the_public_names_and_all_of_them_are_there():
    names = dir(wg)
    assert {"Tensor", "tensor", "nn", "cuda", "FloatTensor", "save", "is_tensor", "errors", "__version__"} <= set(names)
    assert not {"MissingNameError", "importlib", "Any", "ops_"} & set(names)
    assert all(hasattr(wg, name) for name in names)
