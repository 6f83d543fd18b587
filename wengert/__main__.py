"""``python -m wengert``: the commands of :mod:`wengert.cli`."""

from wengert.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
