"""``wengert.utils.hooks``: the handle that every registration of a hook returns."""

from wengert.tape.hooks import RemovableHandle

__all__ = ["RemovableHandle"]
