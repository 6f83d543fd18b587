"""Shapes, views, joins and cuts: values against NumPy, memory shared, histories through views."""

import numpy as np
import pytest

import wengert as wg
from wengert.core.registry import operators
from wengert.errors import InplaceError, ShapeError

A = np.arange(24.0).reshape(2, 3, 4)
M = np.arange(6.0).reshape(2, 3)

# Views: what is called, what NumPy makes of the same array.
VIEWS = [
    ("reshape", lambda x: x.reshape(4, -1), lambda a: a.reshape(4, 6)),
    ("reshape of a transpose", lambda x: x.mT.reshape(2, 2, 2, 3), lambda a: a.swapaxes(1, 2).reshape(2, 2, 2, 3)),
    ("view", lambda x: x.view(6, 4), lambda a: a.reshape(6, 4)),
    (
        "view of a transpose",
        lambda x: x.transpose(0, 1).view(3, 2, 2, 2),
        lambda a: a.swapaxes(0, 1).reshape(3, 2, 2, 2),
    ),
    ("view by tensor size", lambda x: x.view(wg.tensor(24)), lambda a: a.reshape(24)),
    ("view_as", lambda x: x.view_as(wg.zeros(4, 6)), lambda a: a.reshape(4, 6)),
    ("flatten", lambda x: x.flatten(1), lambda a: a.reshape(2, 12)),
    ("unflatten", lambda x: x.unflatten(-1, (2, -1)), lambda a: a.reshape(2, 3, 2, 2)),
    ("ravel", lambda x: x.ravel(), lambda a: a.ravel()),
    ("squeeze", lambda x: x[:1].squeeze(), lambda a: a[0]),
    ("unsqueeze", lambda x: x.unsqueeze(-2), lambda a: a[:, :, None]),
    ("permute", lambda x: x.permute(2, 0, 1), lambda a: a.transpose(2, 0, 1)),
    ("transpose", lambda x: x.transpose(0, -1), lambda a: a.swapaxes(0, 2)),
    ("movedim", lambda x: x.movedim((0, 1), (2, 0)), lambda a: np.moveaxis(a, (0, 1), (2, 0))),
    ("T", lambda x: x.T, lambda a: a.T),
    ("mT", lambda x: x.mT, lambda a: a.swapaxes(1, 2)),
    ("expand", lambda x: x[:, :1].expand(5, -1, 3, -1), lambda a: np.broadcast_to(a[:, :1], (5, 2, 3, 4))),
    ("expand_as", lambda x: x[0].expand_as(x), lambda a: np.broadcast_to(a[0], a.shape)),
    ("broadcast_to", lambda x: wg.broadcast_to(x, (2, 2, 3, 4)), lambda a: np.broadcast_to(a, (2, 2, 3, 4))),
    ("select", lambda x: x.select(1, -1), lambda a: a[:, -1]),
    ("narrow", lambda x: x.narrow(2, -3, 2), lambda a: a[:, :, 1:3]),
    ("diagonal", lambda x: x.diagonal(1, 1, 2), lambda a: np.diagonal(a, 1, 1, 2)),
    ("unfold", lambda x: x.unfold(2, 2, 2), lambda a: a.reshape(2, 3, 2, 2)),
    ("as_strided", lambda x: x.as_strided((3, 2), (4, 12), 1), lambda a: a[:, :, 1].T),
    ("getitem", lambda x: x[1:, None, ::2, -1], lambda a: a[1:, None, ::2, -1]),
    ("unbind", lambda x: x.unbind(1)[2], lambda a: a[:, 2]),
    ("split", lambda x: x.split([1, 3], -1)[1], lambda a: a[..., 1:]),
    ("chunk", lambda x: x.chunk(2, 2)[1], lambda a: a[..., 2:]),
    ("tensor_split", lambda x: x.tensor_split(3, 1)[2], lambda a: a[:, 2:]),
    ("dsplit", lambda x: x.dsplit([1])[1], lambda a: a[..., 1:]),
    ("detach", lambda x: x.detach(), lambda a: a),
    ("view as int64", lambda x: x.view(wg.int64), lambda a: a.view(np.int64)),
    ("view as complex", lambda x: x.view(wg.complex128), lambda a: a.view(np.complex128)),
    ("view as int32", lambda x: x.view(wg.int32), lambda a: a.view(np.int32)),
]
IDS = [name for name, _, _ in VIEWS]


@pytest.mark.parametrize(("name", "taken", "expected"), VIEWS, ids=IDS)
def test_views_show_the_same_elements(name, taken, expected):
    base = A.copy()
    view = taken(wg.from_numpy(base))
    np.testing.assert_array_equal(view.numpy(), expected(base))
    if name != "reshape of a transpose":
        assert np.shares_memory(view.numpy(), base)
        base += 1
        np.testing.assert_array_equal(view.numpy(), expected(base))


# Not written: what overlaps itself, is one of several, has no history, or means memory rather than elements.
UNWRITTEN = ("expand", "broadcast", "detach", "view as", "unbind", "split", "chunk", "dsplit", "as_strided")
WRITABLE = [row for row in VIEWS if not row[0].startswith(UNWRITTEN)]


@pytest.mark.parametrize("layout", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
@pytest.mark.parametrize(("name", "taken", "expected"), WRITABLE, ids=[row[0] for row in WRITABLE])
def test_a_write_through_a_view_reaches_the_gradient_of_the_base(name, taken, expected, layout):
    """y = x in any memory layout, v a view of y, v *= 3: the gradient of x is 3 where v looks and 1 elsewhere."""
    x = wg.tensor(A.transpose(np.argsort(layout)).copy(), requires_grad=True)
    y = (x * 1).permute(layout)
    try:
        v = taken(y)
    except ShapeError as refused:
        assert "use reshape()" in str(refused)  # noqa: PT017 - which layouts a view() refuses is NumPy's business
        return
    wanted = np.ones(A.size)
    if np.shares_memory(v.numpy(force=True), y.numpy(force=True)):
        wanted[expected(np.arange(A.size).reshape(A.shape)).reshape(-1)] = 3
    wanted = wanted.reshape(A.shape)
    v.mul_(3)
    np.testing.assert_array_equal(y.numpy(force=True), A * wanted)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.permute(layout).numpy(), wanted)


def test_a_view_of_a_view_of_a_transposed_base_is_written_where_it_looks():
    x = wg.tensor(M, requires_grad=True)
    base = x.t() * 2  # lies in memory as x does: its transpose can be viewed as a vector, a row-major copy's could not
    base.t().view(-1)[1:3].mul_(3)
    base.sum().backward()
    assert x.grad.tolist() == [[2, 6, 6], [2, 2, 2]]


def test_chains_of_views_follow_their_base():
    x = wg.tensor(M, requires_grad=True)
    y = x * 1
    v = y.t()[1:].unsqueeze(0)
    y.mul_(wg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=wg.float64))
    v.sum().backward()
    assert x.grad.tolist() == [[0, 2, 3], [0, 5, 6]]


@pytest.mark.parametrize("make", [lambda y: y.unbind(0), lambda y: y.split(1), lambda y: y.chunk(2), lambda y: list(y)])
def test_one_of_several_views_is_not_written(make):
    y = wg.tensor(M, requires_grad=True) * 1
    with pytest.raises(InplaceError, match="several views"):
        make(y)[0].mul_(2)
    with wg.no_grad():
        make(y)[0].mul_(2)
    assert y[0].tolist() == [0, 2, 4]


def test_an_empty_view_takes_its_history_to_the_base():
    v = wg.ones(0, requires_grad=True)
    y = wg.zeros(3)
    y[3:] = v * 2
    y.sum().backward()
    assert v.grad.shape == (0,)


# ---- shapes changed in place


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x: x.unsqueeze_(1), M[:, None]),
        (lambda x: x.t_(), M.T),
        (lambda x: x.transpose_(0, 1), M.T),
        (lambda x: x.swapaxes_(0, 1).unsqueeze_(0).squeeze_(), M.T),
        (lambda x: x.unsqueeze_(0).swapdims_(0, 1).squeeze_(1), M),
    ],
)
def test_shapes_change_in_place(call, expected):
    x = wg.tensor(M, requires_grad=True)
    y = x * 2
    row = y[1]
    assert call(y) is y
    np.testing.assert_array_equal(y.numpy(force=True), expected * 2)
    y.mul_(3)  # the view taken before sees it, in the shape that it had
    assert row.tolist() == [18, 24, 30]
    (row.sum() + y.sum()).backward()
    assert x.grad.tolist() == [[6, 6, 6], [12, 12, 12]]


def test_a_shape_changed_in_place_is_a_write():
    y = wg.tensor(M, requires_grad=True) * 1
    z = y * y
    y.t_()
    with pytest.raises(InplaceError, match=r"t_\(\)"):
        z.sum().backward()
    with pytest.raises(InplaceError, match="leaf"):
        wg.ones(2, requires_grad=True).unsqueeze_(0)


def test_resize():
    x = wg.tensor(M)
    assert x.resize_(2, 2).tolist() == [[0, 1], [2, 3]]
    assert x.resize_(6).tolist()[:4] == [0, 1, 2, 3]
    assert x.resize_as_(wg.zeros(1, 3)).shape == (1, 3)
    with pytest.raises(InplaceError, match="is a view"):
        x[0].resize_(2)
    with pytest.raises(InplaceError, match="requires grad"):
        wg.ones(2, requires_grad=True).resize_(3)


# ---- as_strided


def test_as_strided_reads_the_memory_of_the_base():
    x = wg.arange(10.0)
    assert x[2:].as_strided((3,), (1,)).tolist() == [2, 3, 4]
    assert x[2:].as_strided((3,), (1,), 0).tolist() == [0, 1, 2]
    assert x[4:].storage_offset() == 4
    assert x.flip(0).t().storage_offset() == 0
    assert wg.from_numpy(np.arange(5.0)[::-1]).as_strided((5,), (1,), 0).tolist() == [0, 1, 2, 3, 4]
    assert wg.from_numpy(np.arange(5.0)[::-1]).storage_offset() == 4


def test_as_strided_adds_up_the_gradients_of_what_it_reads_twice():
    x = wg.arange(5.0, requires_grad=True)
    (x * 1).as_strided((3, 3), (1, 1)).sum().backward()
    assert x.grad.tolist() == [1, 2, 3, 2, 1]
    y = wg.tensor(M, requires_grad=True)
    (y.t() * 1).as_strided((2,), (5,)).sum().backward()
    assert y.grad.tolist() == [[1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [
        ((11,), (1,), 0),
        ((2,), (10,), 0),
        ((1,), (1,), 10),
        ((2, 2), (8, 2), 0),
        ((1 << 40, 1 << 40), (1, 1), 0),
        ((2,), (1 << 62,), 0),
    ],
)
def test_as_strided_never_leaves_the_memory(size, stride, offset):
    for x in (wg.arange(10), wg.arange(20)[:10].clone(), wg.arange(10).reshape(2, 5).t()):
        with pytest.raises(ShapeError, match="reach element"):
            x.as_strided(size, stride, offset)
    with pytest.raises(ShapeError, match="reach element"):
        wg.as_strided_scatter(wg.arange(10), wg.arange(1), size, stride, offset)


def test_as_strided_of_memory_it_cannot_describe_is_refused():
    with pytest.raises(ShapeError, match="does not fill"):
        wg.from_numpy(np.arange(10)[::2]).as_strided((2,), (1,))
    with pytest.raises(ShapeError, match="share one memory"):
        wg.from_numpy(np.broadcast_to(np.ones(1), (3,))).as_strided((1,), (1,))
    with pytest.raises(ShapeError, match="not negative"):
        wg.arange(3).as_strided((2,), (-1,))
    leaf = wg.zeros(4)[1:].requires_grad_()
    with pytest.raises(RuntimeError, match="leaf of its own"):
        leaf.as_strided((1,), (1,))


def test_as_strided_scatter_has_the_gradients_of_a_replacement():
    x, src = wg.tensor(M, requires_grad=True), wg.zeros(2, 2, dtype=wg.float64, requires_grad=True)
    out = wg.as_strided_scatter(x, src, (2, 2), (3, 1))
    out.backward(wg.tensor(M + 1))
    assert out.tolist() == [[0, 0, 2], [0, 0, 5]]
    assert x.grad.tolist() == [[0, 0, 3], [0, 0, 6]]
    assert src.grad.tolist() == [[1, 2], [4, 5]]


def test_windows_of_any_step_have_their_gradient():
    for size, step in ((1, 1), (2, 1), (2, 3), (7, 1), (5, 2)):
        x = wg.arange(7.0, requires_grad=True)
        taken = x.unfold(0, size, step)
        np.testing.assert_array_equal(
            taken.numpy(force=True), [np.arange(k, k + size) for k in range(0, 8 - size, step)]
        )
        taken.sum().backward()
        counts = np.zeros(7)
        for k in range(0, 8 - size, step):
            counts[k : k + size] += 1
        assert x.grad.tolist() == counts.tolist()


# ---- copies with another arrangement, against NumPy


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda x: x.repeat(2, 1, 3), np.tile(M, (2, 1, 3))),
        (lambda x: x.repeat(0, 2), np.tile(M, (0, 2))),
        (lambda x: x.tile(2), np.tile(M, 2)),
        (lambda x: x.tile((2, 2, 1)), np.tile(M, (2, 2, 1))),
        (lambda x: x.repeat_interleave(2), np.repeat(M, 2)),
        (lambda x: x.repeat_interleave(wg.tensor([2, 0, 1]), 1), np.repeat(M, [2, 0, 1], 1)),
        (lambda x: wg.repeat_interleave(wg.tensor([2, 0, 1])), np.array([0, 0, 2])),
        (lambda x: x.flip(0, 1), M[::-1, ::-1]),
        (lambda x: x.flip(()), M),
        (lambda x: x.fliplr(), np.fliplr(M)),
        (lambda x: x.flipud(), np.flipud(M)),
        (lambda x: x.roll(4), np.roll(M, 4)),
        (lambda x: x.roll((1, -1), (0, 1)), np.roll(M, (1, -1), (0, 1))),
        *[(lambda x, k=k: x.rot90(k), np.rot90(M, k)) for k in range(-2, 4)],
        (lambda x: x.rot90(1, (1, 0)), np.rot90(M, 1, (1, 0))),
        (lambda x: x.tril(1), np.tril(M, 1)),
        (lambda x: x.triu(-1), np.triu(M, -1)),
        (lambda x: x.diag(), np.diag(M)),
        (lambda x: x[0].diag(-1), np.diag(M[0], -1)),
        (lambda x: x.diagflat(), np.diagflat(M)),
        (lambda x: x.diag_embed(), np.stack([np.diag(r) for r in M])),
        (lambda x: x.diag_embed(1, 0, 2), np.stack([np.diag(r, 1) for r in M], 1)),
        (lambda x: wg.block_diag(x, x[0], wg.tensor(7.0, dtype=wg.float64)).sum(), np.array(M.sum() + M[0].sum() + 7)),
        (lambda x: wg.cartesian_prod(wg.tensor([1, 2]), wg.tensor([3, 4])), np.array([[1, 3], [1, 4], [2, 3], [2, 4]])),
        (lambda x: wg.meshgrid(x[0], x[1], indexing="xy")[0], np.meshgrid(M[0], M[1])[0]),
        (lambda x: wg.vander(x[0], 4), np.vander(M[0], 4)),
        (lambda x: wg.vander(x[1], increasing=True), np.vander(M[1], increasing=True)),
        (lambda x: wg.cat([x, x.int(), wg.zeros(0)], -1), np.concatenate([M, M], 1)),
        (lambda x: wg.stack([x, x], -1), np.stack([M, M], -1)),
        (lambda x: wg.hstack([x[0], x[1]]), np.hstack(M)),
        (lambda x: wg.vstack([x[0], x]), np.vstack([M[0], M])),
        (lambda x: wg.dstack([x, x]), np.dstack([M, M])),
        (lambda x: wg.column_stack([x[:, 0], x]), np.column_stack([M[:, 0], M])),
        (lambda x: x.contiguous(), M),
        (lambda x: x.t().contiguous(), M.T),
        (lambda x: wg.atleast_3d(x), M[..., None]),
        (lambda x: wg.broadcast_tensors(x[:, :1], x[0])[0], np.broadcast_to(M[:, :1], (2, 3))),
        (lambda x: x.detach_copy(), M),
    ],
)  # fmt: skip
def test_arranged_against_numpy(made, expected):
    result = made(wg.tensor(M))
    np.testing.assert_array_equal(result.numpy(), expected)


def test_contiguous_returns_a_contiguous_tensor_itself():
    x = wg.ones(2, 3)
    assert x.contiguous() is x
    assert x.t().contiguous().is_contiguous()


def test_adjoints_of_complex_matrices():
    z = wg.tensor(M + 1j * M[::-1])
    np.testing.assert_array_equal(z.H.numpy(), z.numpy().conj().T)
    np.testing.assert_array_equal(z.adjoint().numpy(), z.mH.numpy())


# ---- in-place writes of whole tensors


def test_copy_takes_over_the_history_of_the_source():
    s = wg.tensor([3.0], requires_grad=True)
    x = wg.tensor(M, requires_grad=True)
    y = x * 1
    assert y.copy_(s) is y
    assert y.dtype is wg.float64
    y.sum().backward()
    assert s.grad.tolist() == [6]
    assert x.grad is None
    z = wg.zeros(2, 2)
    assert not z.copy_(wg.ones(2)).requires_grad
    assert z.copy_(s).grad_fn is not None
    assert not z.is_leaf


def test_fill_and_zero_keep_their_place_in_the_graph():
    x, v = wg.tensor(M, requires_grad=True), wg.tensor(4.0, requires_grad=True)
    y = x * 1
    y.fill_(v)
    y[0].zero_()
    assert y.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == np.zeros_like(M).tolist()
    assert v.grad.item() == 3


@pytest.mark.parametrize(
    ("make", "wrap", "expected"),
    [((3, 2), False, 2), ((2, 3), False, 2), ((7, 3), True, 6), ((3, 3, 3), False, 3)],
)
def test_fill_diagonal(make, wrap, expected):
    x = wg.zeros(make)
    array = np.zeros(make)
    np.fill_diagonal(array, 2, wrap)
    assert x.fill_diagonal_(2, wrap) is x
    np.testing.assert_array_equal(x.numpy(), array)
    assert (x != 0).sum().item() == expected


def test_overlapping_copies_read_before_they_write():
    x = wg.arange(5.0)
    x[1:].copy_(x[:-1])
    assert x.tolist() == [0, 0, 1, 2, 3]
    x[:-1] = x[1:]
    assert x.tolist() == [0, 1, 2, 3, 3]


# ---- errors


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.t().view(6), RuntimeError, "use reshape"),
        (lambda x: x.reshape(4, -1), RuntimeError, "invalid"),
        (lambda x: x.reshape(-1, -1), RuntimeError, "at most one -1"),
        (lambda x: x.view(wg.complex128), RuntimeError, "does not divide"),
        (lambda x: x.t().view(wg.float32), RuntimeError, "contiguous"),
        (lambda x: wg.tensor(1.0).view(wg.float64), RuntimeError, "0-d"),
        (lambda x: x.permute(0), RuntimeError, "permute"),
        (lambda x: x.permute(0, 0), RuntimeError, "twice"),
        (lambda x: x.transpose(0, 2), IndexError, "dim1=2"),
        (lambda x: x.unsqueeze(4), IndexError, "dim=4"),
        (lambda x: x.flatten(1, 0), RuntimeError, "start_dim"),
        (lambda x: x.unflatten(1, (2, 2)), RuntimeError, "unflatten"),
        (lambda x: x.expand(3, 3), RuntimeError, "expand"),
        (lambda x: x.select(0, 2), IndexError, "index 2 is out of bounds for dimension 0 with size 2"),
        (lambda x: x.narrow(1, 2, 2), RuntimeError, "reach beyond"),
        (lambda x: x.narrow(1, 4, 0), IndexError, "start=4"),
        (lambda x: x.unsqueeze(0).t(), RuntimeError, "at most 2"),
        (lambda x: x[0].mT, RuntimeError, "at least 2"),
        (lambda x: x.movedim(0, (0, 1)), RuntimeError, "equally many"),
        (lambda x: x.diagonal(0, 1, 1), RuntimeError, "different"),
        (lambda x: x.unfold(1, 4, 1), RuntimeError, "does not fit"),
        (lambda x: x.split(0), RuntimeError, "positive"),
        (lambda x: x.split([1, 2]), RuntimeError, "add up to 2"),
        (lambda x: x.chunk(0), RuntimeError, "positive"),
        (lambda x: x.hsplit(2), RuntimeError, "equal parts"),
        (lambda x: x[0].vsplit(1), RuntimeError, "at least 2"),
        (lambda x: x.sum().unbind(), IndexError, "0-d"),
        (lambda x: x.repeat(2), RuntimeError, "repeats"),
        (lambda x: x.repeat_interleave(wg.tensor([1, -1]), 0), RuntimeError, "negative"),
        (lambda x: x.repeat_interleave(wg.tensor([1, 1, 1]), 0), RuntimeError, "3 repeats"),
        (lambda x: x.roll((1, 2)), RuntimeError, "one shift"),
        (lambda x: x.rot90(1, (0,)), RuntimeError, "two dimensions"),
        (lambda x: x.unsqueeze(0).diag(), RuntimeError, "diagonal"),
        (lambda x: wg.cat([x, x.t()]), RuntimeError, "tensor 1 has shape"),
        (lambda x: wg.cat([]), ValueError, "at least one"),
        (lambda x: wg.stack([x, x[0]]), RuntimeError, "one shape"),
        (lambda x: wg.cat([x.sum(), x.sum()]), RuntimeError, "use stack"),
        (lambda x: x.copy_(wg.zeros(4)), RuntimeError, "broadcast"),
        (lambda x: x.fill_(wg.zeros(2)), RuntimeError, "0-d"),
        (lambda x: x.int().fill_(float("nan")), RuntimeError, "does not fit"),
        (lambda x: x.fill_(1j), RuntimeError, "complex"),
        (lambda x: x[0].fill_diagonal_(1), RuntimeError, "matrix"),
        (lambda x: x[0].detach_(), RuntimeError, "detach"),
    ],
)
def test_refused(call, error, message):
    x = wg.tensor(M)
    with pytest.raises(error, match=message):
        call(x)
    np.testing.assert_array_equal(x.numpy(), M)


def test_every_view_operator_replays_from_plain_values():
    """What a view keeps of its steps is data, so that it can be replayed on any tensor and pickled."""
    plain = (int, slice, str, type(None), wg.dtype)
    x = wg.tensor(A)

    def check(value):
        assert isinstance(value, plain) or (isinstance(value, tuple) and all(map(check, value))), value
        return True

    for _, taken, _ in VIEWS:
        view = taken(x)
        for op, values, _ in view._view.chain if view._view is not None else ():
            assert op is operators()[op.name]
            assert op.view
            check(tuple(values[1:]))
