"""The stub of tensor methods is what the registry attaches."""

from wengert.testing.stubs import PATH, stub


def test_the_stub_is_fresh():
    assert PATH.read_text(encoding="utf-8") == stub(), "run: python -m wengert.testing.stubs"
