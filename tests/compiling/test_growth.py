"""What stays behind of many calls and many shapes: nothing that grows."""

import gc
import tracemalloc

import wengert as wg
from wengert.codegen.cache import counters
from wengert.compiling.function import FORMS

F = wg.nn.functional
SHAPES, STEPS = FORMS + 44, 10_000


def test_many_shapes_share_their_kernels_and_old_programs_go() -> None:
    run = wg.compile(lambda x: (x.sin() * 2 + x.exp()).sum(-1))
    for size in range(1, 40):  # kernels are made for structures: one row, few elements, whole vectors
        run(wg.ones(3, size))
    made = counters().compiled + counters().disk
    for size in range(40, SHAPES):
        assert run(wg.zeros(3, size)).tolist() == [size] * 3
    assert counters().compiled + counters().disk == made
    assert len(run.programs) == FORMS


def test_many_steps_leave_nothing_behind() -> None:
    model = wg.nn.Linear(4, 3)
    optimizer = wg.optim.Adam(model.parameters())

    @wg.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = wg.randn(5, 4), wg.arange(5) % 3

    def objects(steps: int) -> int:
        for _ in range(steps):
            step(x, y)
        gc.collect()
        return len(gc.get_objects())

    before = objects(100)
    assert objects(STEPS) <= before + 50
    tracemalloc.start()
    try:
        objects(100)
        first = tracemalloc.get_traced_memory()[0]
        objects(1000)
        assert tracemalloc.get_traced_memory()[0] <= first + 10_000
    finally:
        tracemalloc.stop()
