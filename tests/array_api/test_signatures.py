"""Every function, method and attribute of the standard is there, with the standard's arguments."""

import inspect

import pytest

import wengert as wg
import wengert.array_api as xp
from tests.array_api import standard

FUNCTIONS = [
    (where, name, signature)
    for where, table in (
        ("", {**standard.signatures(standard.MAIN), **standard.elementwise()}),
        ("linalg", standard.signatures(standard.LINALG)),
        ("fft", standard.signatures(standard.FFT)),
        ("info", standard.signatures(standard.INFO)),
    )
    for name, signature in table.items()
]


def home(where):
    return xp if not where else xp.__array_namespace_info__() if where == "info" else getattr(xp, where)


@pytest.mark.parametrize(
    ("where", "name", "signature"), FUNCTIONS, ids=[f"{w}.{n}".strip(".") for w, n, _ in FUNCTIONS]
)
def test_a_function_takes_the_arguments_of_the_standard(where, name, signature):
    function = getattr(home(where), name)
    assert inspect.getdoc(function)
    found, wanted = (list(s.parameters.values()) for s in (inspect.signature(function), signature))
    assert [(p.kind, p.default) for p in found] == [(p.kind, p.default) for p in wanted]
    named = [p.name for p in wanted if p.kind is not p.POSITIONAL_ONLY]
    assert [p.name for p in found if p.kind is not p.POSITIONAL_ONLY] == named


@pytest.mark.parametrize("name", standard.METHODS + standard.ATTRIBUTES)
def test_a_tensor_has_the_method_or_attribute(name):
    assert hasattr(wg.ones(2, 2), name)


def test_all_lists_what_the_standard_lists_and_nothing_else():
    functions = {name for where, name, _ in FUNCTIONS if not where}
    constants = {"e", "inf", "nan", "newaxis", "pi"}
    beyond = {"special", "use_standard_operators", "__array_api_version__", "linalg", "fft"}
    assert set(xp.__all__) == functions | constants | beyond | set(standard.DTYPES)
    assert len(xp.__all__) == len(set(xp.__all__))


@pytest.mark.parametrize("version", [None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"])
def test_a_tensor_names_the_namespace(version):
    assert wg.ones(2).__array_namespace__(api_version=version) is xp
    assert xp.__array_api_version__ == "2025.12"


def test_an_unknown_version_is_refused():
    with pytest.raises(ValueError, match=r"2020\.10"):
        wg.ones(2).__array_namespace__(api_version="2020.10")


def test_the_matrix_product_has_an_in_place_form():
    x = wg.ones(2, 2)
    x @= x
    assert x.tolist() == [[2, 2], [2, 2]]
