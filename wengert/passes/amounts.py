"""Numbers for people: counts with decimal prefixes, and times."""

__all__ = ["amount", "duration"]


def amount(count: int, unit: str = "") -> str:
    """Return a number with a decimal prefix.

    Example:
        >>> amount(999, "B"), amount(1500, "B"), amount(2_500_000)
        ('999 B', '1.50 kB', '2.50 M')
    """
    number, prefixes = float(count), iter("kMGTP")
    prefix = ""
    while number >= 1000:
        number, prefix = number / 1000, next(prefixes)
    return (f"{number:.2f} {prefix}{unit}" if prefix else f"{count} {unit}").strip()


def duration(seconds: float) -> str:
    """Return a time in a unit that suits it.

    Example:
        >>> duration(0.0123), duration(4e-7)
        ('12.3 ms', '400 ns')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
