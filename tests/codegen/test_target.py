"""The machine, and what the environment makes of it."""

import pytest

from wengert.codegen import engine, target
from wengert.codegen.target import LEVELS, Target, host

EVERYTHING = {feature: True for features in LEVELS.values() for feature in features}


@pytest.fixture
def asked(monkeypatch):
    """Set variables, and let the machine be looked at anew."""
    host.cache_clear()
    yield lambda name, value: (monkeypatch.setenv(name, value), host.cache_clear())
    monkeypatch.undo()
    host.cache_clear()


@pytest.mark.parametrize(
    ("triple", "has", "facts"),
    [
        ("x86_64-unknown-linux-gnu", (), (16, 16, False, False, False)),
        ("x86_64-unknown-linux-gnu", ("avx", "f16c"), (16, 16, False, True, False)),
        ("x86_64-pc-windows-msvc", ("avx", "avx2", "fma", "f16c"), (32, 16, True, True, False)),
        ("x86_64-unknown-linux-gnu", ("avx2", "fma", "f16c", "avx512f"), (32, 16, True, True, False)),
        ("x86_64-unknown-linux-gnu", ("avx2", "fma", "f16c", "avx512f", "avx512vl"), (64, 32, True, True, False)),
        (
            "x86_64-apple-darwin",
            ("avx2", "fma", "f16c", "avx512f", "avx512vl", "avx512bf16"),
            (64, 32, True, True, True),
        ),
        ("aarch64-unknown-linux-gnu", (), (16, 32, True, True, False)),
        ("arm64-apple-darwin", ("bf16",), (16, 32, True, True, True)),
    ],
)
def test_facts_follow_from_features(triple, has, facts) -> None:
    assert target._facts(triple, dict.fromkeys(has, True)) == facts


def test_the_host_is_described() -> None:
    machine = host()
    assert machine.vector_bytes in (16, 32, 64)
    assert machine.registers in (16, 32)
    assert machine.features == ",".join(sorted(machine.features.split(","), key=lambda f: f[1:]))
    assert machine is host()


@pytest.mark.parametrize("field", ["triple", "cpu", "features", "vector_bytes"])
def test_the_key_tells_machines_apart(field) -> None:
    machine = Target("a", "b", "c", 32, 16, True, True, False)
    other = machine._replace(**{field: 16 if field == "vector_bytes" else "x"})
    assert machine.key != other.key


def test_vectors_can_be_narrowed(asked) -> None:
    asked("WENGERT_VECTOR_BYTES", "16")
    assert host().vector_bytes == 16
    asked("WENGERT_VECTOR_BYTES", "64")
    widest = host().vector_bytes
    asked("WENGERT_VECTOR_BYTES", "")
    assert host().vector_bytes == widest


def test_instructions_can_be_taken_away(asked, monkeypatch) -> None:
    monkeypatch.setattr(target, "_features", lambda: EVERYTHING)
    expected = {"x86-64": (16, False), "x86-64-v2": (16, False), "x86-64-v3": (32, True), "x86-64-v4": (64, True)}
    for level, (width, fma) in expected.items():
        asked("WENGERT_CPU", level)
        assert (host().cpu, host().vector_bytes, host().fma) == (level, width, fma)


def test_code_for_less_has_no_more(asked, monkeypatch) -> None:
    if not host().triple.startswith("x86_64"):
        pytest.skip("the levels are those of x86")
    text = "declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>)\n"
    text += "define <4 x float> @f(<4 x float> %x) {\n"
    text += "%y = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %x, <4 x float> %x, <4 x float> %x)\nret <4 x float> %y\n}"
    asked("WENGERT_CPU", "x86-64")
    monkeypatch.setattr(engine, "_own", type(engine._own)())
    assert "mulps" in engine.assembly(text)
    assert "vmulps" not in engine.assembly(text)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("WENGERT_VECTOR_BYTES", "24", "WENGERT_VECTOR_BYTES must be 16, 32 or 64, got '24'"),
        ("WENGERT_VECTOR_BYTES", "wide", "got 'wide'"),
        ("WENGERT_CPU", "pentium", "WENGERT_CPU must be one of x86-64, .*got 'pentium'"),
    ],
)
def test_wrong_values_are_named(asked, name, value, message) -> None:
    asked(name, value)
    with pytest.raises(ValueError, match=message):
        host()


def test_a_processor_cannot_be_more_than_it_is(asked, monkeypatch) -> None:
    monkeypatch.setattr(target, "_features", lambda: {**EVERYTHING, "avx512vl": False})
    asked("WENGERT_CPU", "x86-64-v4")
    with pytest.raises(ValueError, match="needs avx512vl, which this processor does not have"):
        host()
