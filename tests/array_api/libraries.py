"""Calls of SciPy and scikit-learn on arrays, run on NumPy's arrays and on tensors; as a script, report how they compare.

SciPy reads SCIPY_ARRAY_API when it is imported, so the tests run this in a process of its own. The report is JSON: for each
call the error of its value, the error of its gradient against central differences (null where it has none), or the
exception that ended it.
"""

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import constants, differentiate, fft, integrate, optimize, signal, special, stats
from scipy.cluster import hierarchy, vq
from scipy.optimize import elementwise
from scipy.spatial.transform import Rotation

import wengert as wg

RNG = np.random.default_rng(0)
V, W = RNG.uniform(0.2, 0.9, 7), RNG.uniform(0.2, 0.9, 7)
A, B = RNG.uniform(0.2, 0.9, (4, 5)), RNG.uniform(0.2, 0.9, (4, 5))
LONG = RNG.uniform(0.2, 0.9, 25)
LABELS = np.array([0, 1, 1, 0, 1, 0, 1, 0, 0, 1])
SAMPLES = RNG.normal(size=(10, 3)) + LABELS[:, None]
TARGETS = SAMPLES @ np.array([1.0, -2.0, 0.5]) + 0.1 * RNG.normal(size=10)

Calls = dict[str, tuple[Callable[..., Any], list[Any]]]


def named(module: Any, names: str, *args: Any) -> Calls:
    """Return calls of several functions of a module on the same arguments."""
    return {f"{module.__name__}.{name}": (getattr(module, name), list(args)) for name in names.split()}


# Functions that stay in the namespace: their values and gradients are right.
DIFFERENTIABLE: Calls = {
    **named(special, "entr gammaln digamma psi erf erfc erfcx erfinv exp2 expm1 expit i0 i0e i1 i1e log1p log_ndtr", V),
    **named(special, "logit ndtr ndtri sinc softmax log_softmax logsumexp", V),
    **named(special, "rel_entr kl_div xlogy xlog1py", V, W),
    "special.multigammaln": (lambda x: special.multigammaln(x + 3, 2), [V]),
    "special.gammainc": (lambda x: special.gammainc(wg.tensor(2.5) if isinstance(x, wg.Tensor) else 2.5, x), [V]),
    "integrate.cumulative_simpson": (lambda y: integrate.cumulative_simpson(y, dx=0.5), [V]),
    "integrate.cumulative_simpson x": (lambda y: integrate.cumulative_simpson(y * y, x=y.cumsum(0)), [V]),
    "integrate.cumulative_trapezoid": (lambda y: integrate.cumulative_trapezoid(y, dx=0.5), [V]),
    "integrate.trapezoid": (lambda y: integrate.trapezoid(y, dx=0.5), [V]),
    "integrate.cubature": (lambda a: integrate.cubature(lambda x: x[..., 0] ** 2, a[:1], a[:1] + 1).estimate, [V]),
    **named(stats, "zscore gmean hmean skew kurtosis sem variation gstd gzscore iqr tmean tvar tstd tmin tmax tsem", V),
    **named(stats, "circmean circvar circstd kstat kstatvar median_abs_deviation differential_entropy entropy describe", V),
    **named(stats, "skewtest kurtosistest normaltest jarque_bera", LONG),
    **named(stats, "power_divergence chisquare combine_pvalues", V / V.sum()),
    **named(stats, "zmap bartlett", V, W),
    "stats.moment": (lambda x: stats.moment(x, 3), [V]), "stats.pmean": (lambda x: stats.pmean(x, 3), [V]),
    "stats.trim_mean": (lambda x: stats.trim_mean(x, 0.2), [V]),
    "stats.directional_stats": (lambda x: stats.directional_stats(x).mean_direction, [A]),
    **named(signal, "hilbert envelope", V), **named(signal, "fftconvolve oaconvolve", V, W),
    "signal.convolve": (lambda x, y: signal.convolve(x, y, method="fft"), [V, W]),
    "signal.correlate": (lambda x, y: signal.correlate(x, y, method="fft"), [V, W]),
    "signal.resample": (lambda x: signal.resample(x, 10), [V]),
    **named(fft, "fft ifft rfft fftn hfft fftshift", V), "fft.fht": (lambda x: fft.fht(x, 0.1, 0.5), [V]),
    "cluster.vq.whiten": (vq.whiten, [A]),
    "optimize.rosen": (optimize.rosen, [V]),
    "optimize.find_root": (
        lambda c: elementwise.find_root(lambda t, k: t**3 - k, (c * 0, c * 0 + 2.0), args=(c,)).x, [V],
    ),
    "differentiate.derivative": (lambda x: differentiate.derivative(lambda t: t**3, x).df, [V]),
    "differentiate.jacobian": (lambda x: differentiate.jacobian(lambda t: t**3, x).df, [V]),
    "constants.convert_temperature": (lambda x: constants.convert_temperature(x, "C", "K"), [V]),
    "spatial.Rotation": (lambda x: Rotation.from_rotvec(x[:, :3]).as_matrix(), [A]),
}  # fmt: skip

# Functions that turn to NumPy on the way, or count: their values are right, tracked tensors are refused or untouched.
VALUES: Calls = {
    **named(special, "gamma cbrt k0 exprel", V), **named(special, "betaln gammaincc zeta poch binom stdtr chdtr", V + 1, W + 1),
    "special.betainc": (special.betainc, [V, W, V]),
    **named(stats, "ttest_ind ttest_rel f_oneway levene fligner pearsonr mannwhitneyu wilcoxon", V, W),
    **named(stats, "kruskal ansari brunnermunzel", V, W),
    **named(stats, "rankdata mode", V),
    "stats.false_discovery_control": (stats.false_discovery_control, [V]),
    **named(signal, "detrend medfilt", V), "signal.lfilter": (lambda b, x: signal.lfilter(b[:3], b[:1] * 0 + 1, x), [V, W]),
    "signal.savgol_filter": (lambda x: signal.savgol_filter(x, 5, 2), [V]),
    **named(fft, "dct dst", V),
    "cluster.vq.vq": (lambda x: vq.vq(x, x[:2]), [A]), "cluster.vq.kmeans": (lambda x: vq.kmeans(x, x[:2]), [A]),
    "cluster.hierarchy.linkage": (hierarchy.linkage, [A]),
    "cluster.hierarchy.fcluster": (lambda x: hierarchy.fcluster(hierarchy.linkage(x), 0.3, "distance"), [A]),
}  # fmt: skip


def learning() -> tuple[Calls, Calls]:
    """Return scikit-learn's calls: those that are differentiable and those whose values are compared alone."""
    from sklearn import decomposition, discriminant_analysis, linear_model, metrics, naive_bayes, preprocessing
    from sklearn.metrics import pairwise

    def transformed(model: Any) -> Callable[..., Any]:
        return lambda x: model.fit_transform(x)

    def predicted(model: Any, method: str = "predict") -> Callable[..., Any]:
        return lambda x, y: getattr(model.fit(x, y), method)(x)

    differentiable: Calls = {
        "StandardScaler": (transformed(preprocessing.StandardScaler()), [SAMPLES]),
        "MinMaxScaler": (transformed(preprocessing.MinMaxScaler()), [SAMPLES]),
        "MaxAbsScaler": (transformed(preprocessing.MaxAbsScaler()), [SAMPLES]),
        "PCA": (transformed(decomposition.PCA(2, svd_solver="covariance_eigh")), [SAMPLES]),
        "PCA full": (transformed(decomposition.PCA(2, svd_solver="full")), [SAMPLES]),
        "Ridge": (predicted(linear_model.Ridge(solver="svd")), [SAMPLES, TARGETS]),
        "LinearDiscriminantAnalysis": (
            predicted(discriminant_analysis.LinearDiscriminantAnalysis(), "decision_function"), [SAMPLES, LABELS],
        ),
        "GaussianNB": (predicted(naive_bayes.GaussianNB(), "predict_log_proba"), [SAMPLES, LABELS]),
        **named(pairwise, "euclidean_distances rbf_kernel linear_kernel polynomial_kernel sigmoid_kernel", A, B),
        **named(pairwise, "laplacian_kernel chi2_kernel additive_chi2_kernel manhattan_distances", A, B),
    }  # fmt: skip
    values: Calls = {
        **named(metrics, "accuracy_score confusion_matrix f1_score", LABELS, LABELS[::-1].copy()),
        **named(metrics, "mean_squared_error mean_absolute_error r2_score max_error explained_variance_score", V, W),
        "log_loss": (metrics.log_loss, [LABELS, np.abs(np.tanh(TARGETS))]),
        "Normalizer": (transformed(preprocessing.Normalizer()), [SAMPLES]),
        "LabelEncoder": (transformed(preprocessing.LabelEncoder()), [LABELS]),
        "PolynomialFeatures": (transformed(preprocessing.PolynomialFeatures()), [SAMPLES]),
        "cosine_similarity": (pairwise.cosine_similarity, [A, B]),
    }
    return differentiable, values


def parts(result: Any) -> Iterator[Any]:
    """Yield the numeric parts of a result: a tensor, array or number, or several, or the outcome of a test."""
    if hasattr(result, "statistic"):
        result = (result.statistic, result.pvalue)
    if isinstance(result, tuple | list):
        for part in result:
            yield from parts(part)
    elif isinstance(result, wg.Tensor | np.ndarray | np.generic | int | float):
        yield result


def total(result: Any, tracked: list[int]) -> Any:
    """Return the sum over some parts, of complex ones of their moduli."""
    found = list(parts(result))
    return sum(abs(found[i]).sum() for i in tracked)


def value_error(function: Callable[..., Any], args: list[Any]) -> float:
    """Return the largest relative difference between the results on tensors and on arrays."""
    pairs = zip(parts(function(*map(wg.tensor, args))), parts(function(*[a.copy() for a in args])), strict=True)
    worst = 0.0
    for got, wanted in pairs:
        if isinstance(got, np.ndarray):
            raise TypeError("the result is an array, not a tensor")
        g, w = np.asarray(got), np.asarray(wanted)
        if g.shape != w.shape:
            raise ValueError(f"shape {g.shape} instead of {w.shape}")
        worst = max(worst, float(np.max(np.abs(g - w) / np.maximum(1, np.abs(w)), initial=0)))
    return worst


def gradient_error(function: Callable[..., Any], args: list[Any], step: float = 1e-6) -> float | None:
    """Return the largest relative difference between gradients and central differences, in a few elements of each array."""
    tensors = [wg.tensor(a, requires_grad=a.dtype.kind == "f") for a in args]
    result = function(*tensors)
    tracked = [i for i, part in enumerate(parts(result)) if isinstance(part, wg.Tensor) and part.requires_grad]
    if not tracked:
        return None
    wanted = [t for t in tensors if t.requires_grad]
    gradients = iter(wg.autograd.grad(total(result, tracked), wanted, allow_unused=True))
    worst = 0.0
    for k, tensor in enumerate(tensors):
        gradient = next(gradients) if tensor.requires_grad else None
        for place in list(np.ndindex(args[k].shape))[:4] if gradient is not None else ():
            ends = []
            for change in (step, -step):
                moved = [a.copy() for a in args]
                moved[k][place] += change
                ends.append(float(np.real(total(function(*moved), tracked))))
            slope = (ends[0] - ends[1]) / (2 * step)
            worst = max(worst, abs(float(gradient[place].item()) - slope) / max(1, abs(slope)))
    return worst


def report(calls: Calls, differentiable: bool) -> dict[str, Any]:
    """Return the outcome of each call."""
    outcome: dict[str, Any] = {}
    for name, (function, args) in calls.items():
        try:
            outcome[name] = {"value": value_error(function, args)}
            if differentiable:
                outcome[name]["gradient"] = gradient_error(function, args)
        except Exception as error:
            outcome[name] = {"error": f"{type(error).__name__}: {error}"}
    return outcome


def main() -> None:
    """Write the report on SciPy, or with the argument "sklearn" that on scikit-learn."""
    warnings.simplefilter("error")
    if sys.argv[1:] == ["sklearn"]:
        import sklearn

        warnings.simplefilter("default")
        first, second = learning()
        with sklearn.config_context(array_api_dispatch=True):
            print(json.dumps({**report(first, True), **report(second, False)}))
    else:
        print(json.dumps({**report(DIFFERENTIABLE, True), **report(VALUES, False)}))


if __name__ == "__main__":
    main()
