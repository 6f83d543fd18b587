"""Small pictures of rectangles and words, as SVG."""

import zlib
from html import escape

__all__ = ["Picture", "colour"]


def colour(name: str) -> str:
    """Return a colour for a name, the same one for names that differ in their numbers alone.

    >>> colour("matmul_1") == colour("matmul_23")
    True
    """
    hue = zlib.crc32(name.rstrip("0123456789_. #").encode()) % 360
    return f"hsl({hue},55%,70%)"


class Picture:
    """Shapes on a white sheet; lengths are in pixels.

    Args:
        width, height: of the sheet.
    """

    def __init__(self, width: float, height: float) -> None:
        self._size = width, height
        self._shapes: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, fill: str, title: str) -> None:
        """Add a rectangle; the title appears when the mouse rests on it, and within it if there is room."""
        self._shapes.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.3):.2f}" height="{height:.2f}" fill="{fill}" stroke="#555" '
            f'stroke-width="0.3"><title>{escape(title)}</title></rect>'
        )
        label = title.splitlines()[0]
        if height >= 9 and width > 6.2 * len(label):
            self.text(x + width / 2, y + height / 2 + 3.5, label, "middle")

    def line(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """Add a thin line."""
        self._shapes.append(
            f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" stroke="#bbb" stroke-width="0.5"/>'
        )

    def text(self, x: float, y: float, words: str, anchor: str = "start") -> None:
        """Add words; the anchor is ``start``, ``middle`` or ``end``."""
        self._shapes.append(f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}">{escape(words)}</text>')

    def __str__(self) -> str:
        width, height = self._size
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}" '
            'font-family="sans-serif" font-size="10">'
        )
        return "\n".join(
            [head, f'<rect width="{width:g}" height="{height:g}" fill="white"/>', *self._shapes, "</svg>\n"]
        )
