"""Bessel functions of order 0 and 1: J and Y, the modified ones I and K, and these scaled by exp(-|x|) and exp(x).

J and Y below 5 are rational functions of x² (times their zeros and logarithms), above 5 Hankel's modulus and phase form
√(2/πx) (P cos χ - Q sin χ) (NIST Digital Library of Mathematical Functions, §10.17), with P and Q rational in (5/x)².
I below 8 is a rational function of x², above 8 exp(x)/√x times one of 8/x, from 20 on of 20/x. K up to 1 is a
rational function of x² minus log x I (plus 1/x), where nothing cancels (§10.31), above 1 exp(-x)/√x times one of 1/x.
The coefficients are minimax fits of this project, made in 40-digit arithmetic; each is good to 1e-16 relative.
"""

import math
from typing import Any

import numpy as np

from wengert.kernels.blocks import in_blocks, pieces, ratio, table

__all__ = ["i0", "i0e", "i1", "i1e", "j0", "j1", "k0", "k0e", "k1", "k1e", "y0", "y1"]

# J0(x) / ((x² - z₁)(x² - z₂)), J1(x) / (x (x² - z)) in x², |x| < 5; z the squares of their zeros
_J0 = table(
    (
        0.005674693325155617, -0.0001879080134272664, 2.324119068512315e-06, -1.3798245314737438e-08,
        4.043380158216401e-11, -4.816015167282552e-14,
    ),
    (
        1.0, 0.011153790539056614, 6.020085124126418e-05, 2.008050949268982e-07, 4.259907029004201e-10,
        4.795869441222524e-13,
    ),
)  # fmt: skip
_J1 = table(
    (
        -0.03405537391318949, 0.0015920848486205656, -2.744963321826112e-05, 2.3201824900118819e-07,
        -1.0485802552343007e-09, 2.479083333848914e-12, -2.4712388585942338e-15,
    ),
    (
        1.0, 0.01013936615918621, 4.928655190122032e-05, 1.463280092764917e-07, 2.7199203417680705e-10,
        2.6214407897925186e-13,
    ),
)  # fmt: skip
# Y0(x) - 2/π log x J0(x), (Y1(x) - 2/π (log x J1(x) - 1/x)) / x in x², 0 < x < 5
_Y0 = table(
    (
        -0.07380429510868723, 0.17670921103274756, -0.013921278703409297, 0.00035631961957106287,
        -4.080747862058166e-06, 2.3305156392045166e-08, -6.57064103829089e-11, 7.413438277268382e-14,
    ),
    (
        1.0, 0.012151133413020265, 7.350633718601997e-05, 2.883991101316595e-07, 7.915808915431382e-10,
        1.4854366171226553e-12, 1.5579326342275588e-15,
    ),
)  # fmt: skip
_Y1 = table(
    (
        -0.19605709064623894, 0.05217316391303305, -0.0023641564455594323, 4.211317338235749e-05,
        -3.659118656746179e-07, 1.6694787165767298e-09, -3.895279640231914e-12, 3.733393260964599e-15,
    ),
    (
        1.0, 0.011096381366806388, 6.082350837171348e-05, 2.1420771912061442e-07, 5.215626219659593e-10,
        8.547114732276862e-13, 7.647657720332291e-16,
    ),
)  # fmt: skip
# Hankel's P and x·Q of order 0 and 1 in (5/x)², x ≥ 5
_P0 = table(
    (
        1.0, 5.312414357239182, 8.776450743311598, 5.473622634324345, 1.2472147965286107, 0.08344791160918849,
        0.0008036274740385929,
    ),
    (
        1.0, 5.315226857239179, 8.791220375488471, 5.497430799547468, 1.2612779956177567, 0.08625950279063628,
        0.0009320987857385707,
    ),
)  # fmt: skip
_Q0 = table(
    (
        -0.12499999999999999, -0.7536883065902436, -1.4331035658892988, -1.0471532650263196, -0.2856770186727468,
        -0.02331202905480515, -0.00024989296257661275,
    ),
    (
        1.0, 6.052943952721848, 11.603787418595589, 8.632478682160576, 2.458862973289956, 0.22672521479456756,
        0.0041447589820613915,
    ),
)  # fmt: skip
_P1 = table(
    (
        1.0, 5.223195532701316, 8.451164813462567, 5.135848931397536, 1.133888766917694, 0.07365529842283154,
        0.0007681404912662193,
    ),
    (
        1.0, 5.21850803270132, 8.426933769949601, 5.09750835451052, 1.1117300498627891, 0.06933473907622684,
        0.0005759108247803673,
    ),
)  # fmt: skip
_Q1 = table(
    (
        0.375, 2.230022722798296, 4.172994347610948, 2.995010210782492, 0.8029635370377326, 0.06528326307331436,
        0.0007980934662424817,
    ),
    (
        1.0, 5.957664760795417, 11.191962559116083, 8.102390396844699, 2.218442017877335, 0.1916214651378067,
        0.0030391180879611574,
    ),
)  # fmt: skip
# I0(x), I1(x)/x in x², |x| < 8; √x e⁻ˣ I(x) in 8/x - 0.7, 8 ≤ x < 20, and in 20/x, x ≥ 20
_I0 = table(
    (
        1.0, 0.242747402141391, 0.01383601085201104, 0.000326699498137655, 3.999782823438902e-06,
        2.8404426149506302e-08, 1.2356702811357002e-10, 3.3238990856680976e-13, 5.244698491739693e-16,
        3.894890856532515e-19,
    ),
    (
        1.0, -0.0072525978586090245, 2.4160316663340595e-05, -4.651726521854172e-08, 5.209579727494228e-11,
        -2.730420845243946e-14,
    ),
)  # fmt: skip
_I1 = table(
    (
        0.5, 0.05856790825533974, 0.002126930685840379, 3.5528149141994384e-05, 3.2213348141506225e-07,
        1.7149284470169989e-09, 5.481183046331248e-12, 1.0056565344858333e-14, 8.545117602991235e-18,
    ),
    (
        1.0, -0.007864183489320307, 2.8550974512169436e-05, -6.022896745590449e-08, 7.430689646548539e-11,
        -4.313001637548085e-14,
    ),
)  # fmt: skip
_I0_MIDDLE = table(
    (
        0.4035432794386473, -0.20810182696833818, 1.1281539400824285, -0.3299769767514652, 0.4034801821063881,
        0.2758637423817162, 0.005259331451836913, 0.000540575199474786, 0.0001163889970652982,
        2.4718503219527425e-05,
    ),
    (
        1.0, -0.5329104324674765, 2.8033002973997228, -0.8654645731300313, 1.010601416841209, 0.6667035655384144,
    ),
)  # fmt: skip
_I1_MIDDLE = table(
    (
        0.38546253692166127, -0.25219468614069124, 1.1169430878978772, -0.48693625146885755, 0.477994173350168,
        0.1682777271373787, -0.010964367671641991, -0.0006665876462814058, -0.00012742933559766294,
        -2.6205028358684898e-05,
    ),
    (
        1.0, -0.6027285435204089, 2.869090504292754, -1.1164972487874096, 1.1895248854300746, 0.4961997971229452,
    ),
)  # fmt: skip
_I0_FAR = table(
    (
        0.3989422804014327, -0.18792330898657306, 0.024604807696350504, -0.0009199950199010133,
        5.191311485648613e-06,
    ),
    (
        1.0, -0.4773038797679573, 0.06448247466196773, -0.002634355195840741, 2.181149047306306e-05,
    ),
)  # fmt: skip
_I1_FAR = table(
    (
        0.3989422804014327, -0.2395645773007191, 0.04385797691806261, -0.002855530357973832, 5.9412122069569527e-05,
        -2.1375207966884087e-07,
    ),
    (
        1.0, -0.581749343062006, 0.09932081357850399, -0.005453104874661942, 6.922100064100258e-05,
    ),
)  # fmt: skip
# K0(x) + log x I0(x), (K1(x) - 1/x + log x I1(x)) / x in x², 0 < x ≤ 1; √x eˣ K(x) in 1/x, x ≥ 1
_K0 = table(
    (
        0.11593151565841245, 0.27670226564027345, 0.01978135636370604, 0.00039881432570563514,
        2.5406938922431416e-06,
    ),
    (
        1.0, -0.019672073304461565, 0.00017767451864474627, -7.772971113117918e-07,
    ),
)  # fmt: skip
_K1 = table(
    (
        -0.3079657578292062, -0.08018935573398676, -0.003244998591497794, -4.514293525308367e-05,
        -2.172714989406461e-07,
    ),
    (
        1.0, -0.01682448084873619, 0.00012707212782208524, -4.51540692780578e-07,
    ),
)  # fmt: skip
_K0_FAR = table(
    (
        1.2533141373155001, 18.689878248327954, 102.70277913466904, 264.82298781497803, 338.4469103599836,
        208.52725575466368, 55.61732283454725, 4.980316123939619, 0.06947584230682785,
    ),
    (
        1.0, 15.037365297626152, 83.75431998530824, 220.7833907608623, 292.73973010700456, 192.12429655451328,
        57.42853931070279, 6.462854515383107, 0.1691472829165649,
    ),
)  # fmt: skip
_K1_FAR = table(
    (
        1.2533141373155003, 18.437418412972534, 100.93922507803329, 264.25690707377964, 354.85140849821505,
        243.94277606739718, 80.55632128464521, 10.83377405334992, 0.3825709328058462,
    ),
    (
        1.0, 14.33593149277329, 75.27906245936899, 184.19431072760491, 221.55356136627037, 127.21141809365,
        31.198710663209724, 2.5051475796090323, 0.027987248846420155,
    ),
)  # fmt: skip
_J0_ZEROS = (5.783185962946784, 30.471262343662087)
_J1_ZERO = 14.681970642123893


def _j0_near(x: Any) -> Any:
    square = x * x
    return (square - _J0_ZEROS[0]) * (square - _J0_ZEROS[1]) * ratio(square, _J0)


def _j1_near(x: Any) -> Any:
    square = x * x
    return x * (square - _J1_ZERO) * ratio(square, _J1)


def _hankel(x: Any, p: Any, q: Any) -> tuple[Any, Any, Any]:
    """Return P, Q and √(1/πx); the phase x - π/4 is expanded by the caller, so that no bit of x is lost."""
    square = (5 / x) ** 2
    return ratio(square, p), ratio(square, q) / x, np.sqrt(1 / (math.pi * x))


def _j0_far(x: Any) -> Any:
    p, q, size = _hankel(x, _P0, _Q0)
    sine, cosine = np.sin(x), np.cos(x)
    return size * (p * (sine + cosine) - q * (sine - cosine))


def _y0_far(x: Any) -> Any:
    p, q, size = _hankel(x, _P0, _Q0)
    sine, cosine = np.sin(x), np.cos(x)
    return size * (p * (sine - cosine) + q * (sine + cosine))


def _j1_far(x: Any) -> Any:
    p, q, size = _hankel(x, _P1, _Q1)
    sine, cosine = np.sin(x), np.cos(x)
    return size * (p * (sine - cosine) + q * (sine + cosine))


def _y1_far(x: Any) -> Any:
    p, q, size = _hankel(x, _P1, _Q1)
    sine, cosine = np.sin(x), np.cos(x)
    return size * (q * (sine - cosine) - p * (sine + cosine))


def _vanishing(x: Any, values: Any) -> Any:
    """Return the values, and their limit 0 where x is infinite."""
    return np.where(np.isinf(x), 0.0, values)


@in_blocks
def j0(x: Any) -> Any:
    """Return the Bessel function of the first kind of order 0."""
    x = np.abs(x)
    return _vanishing(x, pieces(x < 5, _j0_near, _j0_far, x))


@in_blocks
def j1(x: Any) -> Any:
    """Return the Bessel function of the first kind of order 1."""
    size = np.abs(x)
    return _vanishing(x, np.copysign(1.0, x) * pieces(size < 5, _j1_near, _j1_far, size))


def _y0_near(x: Any) -> Any:
    return ratio(x * x, _Y0) + (2 / math.pi) * np.log(x) * _j0_near(x)


def _y1_near(x: Any) -> Any:
    return x * ratio(x * x, _Y1) + (2 / math.pi) * (np.log(x) * _j1_near(x) - 1 / x)


def _positive(x: Any, near: Any, far: Any) -> Any:
    """Return a function of positive numbers: -inf at 0, nan below, 0 at infinity."""
    inside = np.where(x > 0, x, 1.0)
    values = _vanishing(x, pieces(inside < 5, near, far, inside))
    return np.where(x > 0, values, np.where(x == 0, -np.inf, np.nan))


@in_blocks
def y0(x: Any) -> Any:
    """Return the Bessel function of the second kind of order 0; -inf at 0, nan below."""
    return _positive(x, _y0_near, _y0_far)


@in_blocks
def y1(x: Any) -> Any:
    """Return the Bessel function of the second kind of order 1; -inf at 0, nan below."""
    return _positive(x, _y1_near, _y1_far)


# ---- modified Bessel functions


def _scaled(size: Any, near: Any, middle: Any, far: Any, odd: bool) -> Any:
    """Return e⁻ˣ I(x) for x ≥ 0."""

    def small(x: Any) -> Any:
        return np.exp(-x) * _entire(x, near, odd)

    def large(x: Any) -> Any:
        return pieces(x < 20, lambda x: ratio(8 / x - 0.7, middle), lambda x: ratio(20 / x, far), x) / np.sqrt(x)

    return pieces(size < 8, small, large, size)


def _entire(x: Any, near: Any, odd: bool) -> Any:
    value = ratio(x * x, near)
    return x * value if odd else value


def _grown(size: Any, near: Any, middle: Any, far: Any, odd: bool) -> Any:
    """Return I(x) for x ≥ 0, exp(x) in two halves so that it overflows no sooner than I does."""

    def large(x: Any) -> Any:
        half = np.exp(0.5 * x)
        return np.where(np.isinf(x), np.inf, half * _scaled(x, near, middle, far, odd) * half)

    return pieces(size < 8, lambda x: _entire(x, near, odd), large, size)


@in_blocks
def i0(x: Any) -> Any:
    """Return the modified Bessel function of the first kind of order 0."""
    return _grown(np.abs(x), _I0, _I0_MIDDLE, _I0_FAR, False)


@in_blocks
def i0e(x: Any) -> Any:
    """Return exp(-|x|) I0(x)."""
    return _scaled(np.abs(x), _I0, _I0_MIDDLE, _I0_FAR, False)


@in_blocks
def i1(x: Any) -> Any:
    """Return the modified Bessel function of the first kind of order 1."""
    return np.copysign(1.0, x) * _grown(np.abs(x), _I1, _I1_MIDDLE, _I1_FAR, True)


@in_blocks
def i1e(x: Any) -> Any:
    """Return exp(-|x|) I1(x)."""
    return np.copysign(1.0, x) * _scaled(np.abs(x), _I1, _I1_MIDDLE, _I1_FAR, True)


def _k0_near(x: Any) -> Any:
    square = x * x
    return ratio(square, _K0) - np.log(x) * ratio(square, _I0)


def _k1_near(x: Any) -> Any:
    square = x * x
    return x * (ratio(square, _K1) + np.log(x) * ratio(square, _I1)) + 1 / x


def _decaying(x: Any, near: Any, far: Any, scaled: bool) -> Any:
    """Return K(x), or eˣ K(x): inf at 0, nan below."""

    def close(x: Any) -> Any:
        return near(x) * np.exp(x) if scaled else near(x)

    def distant(x: Any) -> Any:
        value = ratio(1 / x, far) / np.sqrt(x)
        half = 1.0 if scaled else np.exp(-0.5 * x)  # in two halves, so that it underflows no sooner than K does
        return half * value * half

    values = pieces(x <= 1, close, distant, np.where(x > 0, x, 1.0))
    return np.where(x > 0, values, np.where(x == 0, np.inf, np.nan))


@in_blocks
def k0(x: Any) -> Any:
    """Return the modified Bessel function of the second kind of order 0; inf at 0, nan below."""
    return _decaying(x, _k0_near, _K0_FAR, False)


@in_blocks
def k0e(x: Any) -> Any:
    """Return exp(x) K0(x); inf at 0, nan below."""
    return _decaying(x, _k0_near, _K0_FAR, True)


@in_blocks
def k1(x: Any) -> Any:
    """Return the modified Bessel function of the second kind of order 1; inf at 0, nan below."""
    return _decaying(x, _k1_near, _K1_FAR, False)


@in_blocks
def k1e(x: Any) -> Any:
    """Return exp(x) K1(x); inf at 0, nan below."""
    return _decaying(x, _k1_near, _K1_FAR, True)
