"""``functional_call`` under its older name."""

from wengert.func import functional_call

__all__ = ["functional_call"]
