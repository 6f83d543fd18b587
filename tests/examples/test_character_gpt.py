"""A short training, against what is known without looking at any context; the bits and the text that is written."""

import math
from collections import Counter

import pytest

import wengert as wg
from examples.character_gpt import BATCH, CONTEXT, GPT, bits_per_character, documents, main


def test_the_model_learns_what_follows_what() -> None:
    found = main(steps=60, length=40)
    text = documents()
    share = {c: n / len(text) for c, n in Counter(text).items()}
    alone = -sum(p * math.log2(p) for p in share.values())  # bits per character, if each came by itself
    assert found["losses"][0] == pytest.approx(math.log2(len(share)), rel=0.1)
    assert found["bits"] < 0.85 * alone
    assert found["written"].startswith("The ")
    assert len(found["written"]) == 44
    assert set(found["written"]) <= set(text)


def test_a_model_that_knows_nothing_needs_the_logarithm_of_the_alphabet() -> None:
    model = GPT(32)
    wg.nn.init.zeros_(model.head.weight)
    wg.nn.init.zeros_(model.head.bias)
    text = wg.randint(0, 32, (CONTEXT * (BATCH + 1) + 1,))
    assert bits_per_character(model, text) == pytest.approx(5.0, rel=1e-6)
