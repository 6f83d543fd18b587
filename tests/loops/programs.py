"""Kernels that several tests of the loop IR use, as text."""

from wengert.loops import monoids
from wengert.loops.ir import Kernel
from wengert.loops.text import parse

__all__ = ["PROGRAMS", "program"]

assert monoids  # declares the monoids

PROGRAMS: dict[str, str] = {}


def _add(text: str) -> None:
    PROGRAMS[text.split("(")[0].split("[")[0].split()[1]] = text


_add("""\
kernel softmax(x: f32[n, d: 1], out y: f32[n, d: 1])
  for i in 0:n
    fold j in 0:d
      m = max(x[i, j])
    fold j in 0:d
      s = sum(exp(x[i, j] - m))
    for j in 0:d
      y[i, j] = exp(x[i, j] - m) / s
""")
_add("""\
kernel copy(x: f32[n: 1], out y: f32[n: 1])
  for i in 0:n
    y[i] = x[i]
""")
_add("""\
kernel transpose(x: f32[n, m: 1], out y: f32[m, n: 1])
  for i in 0:n
    for j in 0:m
      y[j, i] = x[i, j]
""")
_add("""\
kernel columns(x: f32[n, m: 1], out y: f32[m: 1])
  for j in 0:m
    fold i in 0:n
      s = sum(x[i, j])
    y[j] = s
""")
_add("""\
kernel total(x: f32[n: 1], out y: f32[])
  a = 2 * n
  fold i in 0:n
    s = sum(x[i])
    w = welford(1.0_f32, x[i], 0.0_f32)
  y[] = s + f32(a) + w.1
""")
_add("""\
kernel running(x: f32[n: 1], out y: f32[n: 1])
  fold i in 0:n
    s = sum(x[i])
    y[i] = s
""")
_add("""\
kernel convolve(x: f32[n: 1], w: f32[k: 1], out y: f32[n: 1])
  for i in 0:n
    fold j in 0:k
      at = i + j - k // 2
      s = sum(x[at if (at >= 0) & (at < n)] * w[j])
    y[i] = s
""")
_add("""\
kernel scatter(at: i64[n: 1], x: f32[n: 1], inout y: f32[m: 1])
  for i in 0:n
    y[at[i]] += x[i]
""")
_add("""\
kernel reverse(x: f32[n, d: 1], out y: f32[n, d: 1])
  for i in 0:n
    stage row: f32[d]
    for j in 0:d
      row[j] = x[i, j] * 2.0
    for j in 0:d
      y[i, j] = row[d - 1 - j]
""")
_add("""\
kernel everything[m, n](x: f16[n, m: 1], t: bf16[3: 0], inout y: f64[n: 1], out z: u8[n], a: f32, k: i32)
  parallel i in 0:n
    w = f32(x[i, 0 if m > 0]) * a
    fold j in 0:m step 2
      c = argmax(f32(x[i, j]), j)
      v = any((f32(x[i, j]) > 0.5) ^ ~(k == -3))
    for j in i:minimum(i + 4, m) by 8 lanes unroll 2
      q = select(j % 2 == 0, fma(w, w, -0.0), rarely(w != w, inf, -(nan_f32)))
    y[i] += f64{1.0, 2, -inf, 1e-300}[k & 3] - f64(bits(w, i32) << 3 >> 1 | 7) if v & (c.1 >= 0)
    z[i] = u8(-(2_i64)) + (255 - u8(True)) - (1 - u8(f32(t[2])))
""")


def program(name: str) -> Kernel:
    """Return a kernel of the table."""
    return parse(PROGRAMS[name])
