"""The Airy function Ai of real arguments and its derivative.

Near 0 they are rational functions of x (times the zero of Ai'); beyond, with ζ = 2/3 |x|^(3/2), exp(-ζ) times one of 2/ζ
on the right, and on the left the form cos(ζ - π/4) P + sin(ζ - π/4) Q / ζ with P and Q rational in (2/ζ)² (NIST Digital
Library of Mathematical Functions, §9.7). ζ is carried in two parts, so that no digit of exp or of the phase is lost. The
coefficients are minimax fits of this project, made in 60-digit arithmetic; each is good to 1e-16 relative.
"""

import math
from typing import Any

import numpy as np

from wengert.kernels.blocks import in_blocks, pieces, ratio, table

__all__ = ["airy_ai", "airy_ai_prime"]

_NEAR = 2.08  # |x| up to which the rational functions of x are used
# Ai(x) and Ai'(x) / (x - root) on [-2.1, 0] and on [0, 2.1]
_AI_LEFT = table(
    (
        0.3550280538878172, -0.008512092884158808, -0.0770380429693215, 0.0121980031566464, 0.00469577263080212,
        -0.0012553489719272447, -6.184234390655014e-05, 4.125059849988595e-05, -1.219957928817547e-06,
        -4.924052395636511e-07,
    ),
    (
        1.0, 0.7050353012039523, 0.2969871597093197, 0.0841981362503685, 0.017852906275186195,
        0.0028127415423678504, 0.0003299981606905168, 2.598316740739017e-05, 1.17133324528644e-06,
    ),
)  # fmt: skip
_AI_RIGHT = table(
    (
        0.3550280538878172, -0.08189107413400663, -0.054357869301362396, 0.02388512011684936,
        -0.0015833484912180095, -0.0008379852984556702, 0.00021824250680746817, -2.1661558408346057e-05,
        8.254017749064662e-07,
    ),
    (
        1.0, 0.4983502788619198, 0.2101942422198544, 0.05384398794244911, 0.012485630467066432,
        0.0019846960169003208, 0.00030152711883910387, 2.6772339082817275e-05, 2.671251468238008e-06,
    ),
)  # fmt: skip
_SLOPE_LEFT = table(
    (
        -0.2540451406670727, 0.07629602935640355, 0.0279772241951123, -0.0132476403748101, 0.00014590491045290055,
        0.0006257305434341519, -7.629899327933855e-05, -8.0249391357315e-06, 1.7502788695633683e-06,
    ),
    (
        1.0, 0.6812289944663813, 0.28094878956463004, 0.07794603455938126, 0.016225923186240443,
        0.0025077544815286386, 0.00028906578604326235, 2.231744210515478e-05, 9.899246779113743e-07,
    ),
)  # fmt: skip
_SLOPE_RIGHT = table(
    (
        -0.2540451406670727, 0.11284740690696504, 0.005223542382786107, -0.011732974088828748,
        0.0023279527552680186, -1.7051194712297846e-05, -5.079073767871456e-05, 6.811423352889676e-06,
        -2.9743200874092875e-07,
    ),
    (
        1.0, 0.5373515030308478, 0.22929081398335266, 0.061217294807054, 0.01431349167269355, 0.002352909115730097,
        0.00035809656843838097, 3.291625153352845e-05, 3.250185482391913e-06,
    ),
)  # fmt: skip
# 2√π x^¼ eᶻ Ai(x) and -2√π x^-¼ eᶻ Ai'(x) in 2/z, z = ζ ≥ 2
_AI_FAR = table(
    (
        1.0, 6.108174473181472, 12.98476040301926, 11.90086452012524, 4.722182507481811, 0.7073517951152898,
        0.025851867377903702, -6.861939925456341e-05,
    ),
    (
        1.0, 6.142896695403672, 13.188772055254367, 12.306530331879017, 5.052626670823899, 0.8126740805089103,
        0.03582094696386724,
    ),
)  # fmt: skip
_SLOPE_FAR = table(
    (
        1.0, 6.095098729823915, 13.004984791730383, 12.114681626718374, 5.021400493562313, 0.8380114766114777,
        0.04155607169435997, 0.00012950464311493065,
    ),
    (
        1.0, 6.04648761871283, 12.722029567978126, 11.55727935406843, 4.57098747685728, 0.6948840338152722,
        0.02777221640976058,
    ),
)  # fmt: skip
# the P and Q of Ai and of Ai' in (2/ζ)², ζ ≥ 2
_AI_P = table(
    (
        1.0, 36.25631712460179, 450.31577578873873, 2457.9238846642156, 6301.631307186902, 7529.922643366651,
        3907.9465499725516, 744.8343210080898, 33.96896162034357, -0.03291519694858021,
    ),
    (
        1.0, 36.26560049651532, 450.6488397714408, 2461.9813139006424, 6323.016275661958, 7581.422109350453,
        3962.938543228498, 768.0058747291343, 36.846454569713174,
    ),
)  # fmt: skip
_AI_Q = table(
    (
        0.06944444444444445, 4.121801078716317, 88.60315377343387, 895.591760048003, 4631.813894918452,
        12515.738678511085, 17328.8502415102, 11563.109829507222, 3276.815384406564, 300.27340428873543,
        3.7834556980488125,
    ),
    (
        1.0, 59.49071054637499, 1283.9177678799008, 13066.110554728793, 68362.13576060432, 188427.76027668494,
        270054.07707482, 191655.6596073474, 60994.99740747108, 7148.999666507981, 191.80589468333392,
    ),
)  # fmt: skip
_SLOPE_P = table(
    (
        1.0, 36.07348196755336, 445.59021709426986, 2418.1248917541834, 6164.880879963642, 7334.886007976192,
        3807.1583532432155, 736.0066218130195, 36.09447104134976, 0.04173127917259665,
    ),
    (
        1.0, 36.06251070983737, 445.19848238057705, 2413.376922692641, 6139.985515244671, 7275.226203806402,
        3743.703960656539, 709.3078758116012, 32.756936536077276,
    ),
)  # fmt: skip
_SLOPE_Q = table(
    (
        -0.09722222222222222, -5.095588280645786, -95.1839850233396, -819.7903955655257, -3523.697931731667,
        -7654.393647974059, -8122.86482186219, -3849.568182501729, -669.6475437309522, -24.75742903209462,
        0.1513717639702598,
    ),
    (
        1.0, 52.520955308673365, 984.6902624337978, 8535.605935346608, 37104.4482910486, 82222.88111991259,
        90450.85130325261, 45869.78994745438, 9178.939823375473, 498.38077758062366,
    ),
)  # fmt: skip
# the zero of Ai' is _ROOT + _ROOT_REST
_ROOT, _ROOT_REST = -1.018792971647471, -2.0609116444448518e-17
_SPLIT = 2.0**27 + 1


def _halves(a: Any) -> tuple[Any, Any]:
    """Return two numbers of 26 digits that sum to a (Veltkamp)."""
    big = _SPLIT * a
    high = big - (big - a)
    return high, a - high


def _error_of_product(a: Any, b: Any, product: Any) -> Any:
    """Return a·b - product exactly, for the rounded product (Dekker, 1971)."""
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    return ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


def _zeta(x: Any) -> tuple[Any, Any]:
    """Return ζ = 2/3 x^(3/2) as a number and its error."""
    root = np.sqrt(x)
    power = x * root
    rest = _error_of_product(x, root, power) - 0.5 * root * _error_of_product(root, root, x)
    zeta = power / 1.5
    return zeta, (rest - _error_of_product(np.full_like(zeta, 1.5), zeta, power)) / 1.5


def _decaying(x: Any, far: Any, power: float) -> Any:
    """Return e^(-ζ) x^power / 2√π times a rational function of 2/ζ."""
    zeta, rest = _zeta(x)
    half = np.exp(-0.5 * zeta)  # in two halves, so that it underflows no sooner than the result
    return half * (ratio(2 / zeta, far) * (1 - rest) * x**power / (2 * math.sqrt(math.pi))) * half


def _phase(size: Any, p: Any, q: Any) -> tuple[Any, Any, Any, Any]:
    """Return P, Q, sin(ζ - π/4) and cos(ζ - π/4), times 1/√π."""
    zeta, rest = _zeta(size)
    square = (2 / zeta) ** 2
    sine, cosine = np.sin(zeta), np.cos(zeta)
    turn = np.sin(rest), np.cos(rest)
    sine, cosine = sine * turn[1] + cosine * turn[0], cosine * turn[1] - sine * turn[0]
    scale = math.sqrt(0.5 / math.pi)
    return ratio(square, p), ratio(square, q) / zeta, (sine - cosine) * scale, (sine + cosine) * scale


def _ai_left(x: Any) -> Any:
    p, q, sine, cosine = _phase(-x, _AI_P, _AI_Q)
    return (cosine * p + sine * q) * (-x) ** -0.25


def _slope_left(x: Any) -> Any:
    p, q, sine, cosine = _phase(-x, _SLOPE_P, _SLOPE_Q)
    return (sine * p - cosine * q) * (-x) ** 0.25


def _ai_near(x: Any) -> Any:
    return pieces(x < 0, lambda x: ratio(x, _AI_LEFT), lambda x: ratio(x, _AI_RIGHT), x)


def _slope_near(x: Any) -> Any:
    quotient = pieces(x < 0, lambda x: ratio(x, _SLOPE_LEFT), lambda x: ratio(x, _SLOPE_RIGHT), x)
    return ((x - _ROOT) - _ROOT_REST) * quotient


def _airy(x: Any, left: Any, near: Any, right: Any) -> Any:
    x = np.clip(x, -1e100, 200.0)  # Ai(200) is 0 in float64, and at -1e100 the phase has no digit left
    return pieces(np.abs(x) < _NEAR, near, lambda x: pieces(x < 0, left, right, x), x)


@in_blocks
def airy_ai(x: Any) -> Any:
    """Return the Airy function Ai(x); 0 at both infinities."""
    values = _airy(x, _ai_left, _ai_near, lambda x: _decaying(x, _AI_FAR, -0.25))
    return np.where(x == -np.inf, 0.0, values)


@in_blocks
def airy_ai_prime(x: Any) -> Any:
    """Return the derivative of Ai; 0 at infinity, nan at -infinity, where it oscillates without bound."""
    values = _airy(x, _slope_left, _slope_near, lambda x: -_decaying(x, _SLOPE_FAR, 0.25))
    return np.where(x == -np.inf, np.nan, values)
