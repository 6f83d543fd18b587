"""The generator against the published vectors, against a transcription in Python integers, and against itself."""

import numpy as np
import pytest

from wengert.kernels import philox

LOW = 0xFFFFFFFF
TOP = 2**64 - 1


def reference(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Figure 3 and section 3.3 of Salmon et al., one block, in Python integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & LOW, (p0 >> 32) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + 0x9E3779B9) & LOW, (k1 + 0xBB67AE85) & LOW
    return c0, c1, c2, c3


def reference_block(key: int, position: int, domain: int, draw: int) -> tuple[int, int, int, int]:
    return reference((position & LOW, position >> 32, draw, domain), (key & LOW, key >> 32))


def reference_words(key: int, offset: int, count: int) -> list[int]:
    return [reference_block(key, i // 4, 0, 0)[i % 4] for i in range(offset, offset + count)]


def reference_pair(block: tuple[int, int, int, int]) -> tuple[int, int]:
    return block[0] | block[1] << 32, block[2] | block[3] << 32


# The file kat_vectors of Random123, rows "philox4x32 10".
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((LOW, LOW, LOW, LOW), (LOW, LOW), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_known_answers(counter, key, expected):
    assert reference(counter, key) == expected
    position = np.array([counter[0] | counter[1] << 32], np.uint64)
    block = philox._blocks(key[0] | key[1] << 32, position, domain=counter[3], draw=counter[2])
    assert tuple(block[0].tolist()) == expected


@pytest.mark.parametrize("key", [0, 1, 1 << 32, 0xDEADBEEF12345678, TOP])
@pytest.mark.parametrize("offset", [0, 1, 2, 3, 4094, 2**34 - 5, 2**40 + 7, TOP - 40])
@pytest.mark.parametrize("count", [0, 1, 7, 40])
def test_words_are_those_of_the_definition(key, offset, count):
    words = philox.words(key, offset, count)
    assert words.dtype == np.uint32
    assert words.tolist() == reference_words(key, offset, count)


@pytest.mark.parametrize("offset", [0, 1, 4097, 2**34 - 30_000])
def test_long_requests_agree_with_short_ones_and_with_the_definition(offset):
    count = 9 * philox._CHUNK + 5
    words = philox.words(3, offset, count)
    assert words.shape == (count,)
    pieces = [philox.words(3, offset + start, min(1000, count - start)) for start in range(0, count, 1000)]
    np.testing.assert_array_equal(words, np.concatenate(pieces))
    for i in (0, 4 * philox._CHUNK - 1, 4 * philox._CHUNK, 8 * philox._CHUNK + 2, count - 1):
        assert words[i] == reference_words(3, offset + i, 1)[0]


def test_results_are_the_callers_own():
    for count in (8, 3 * philox._PAGE):
        first = philox.words(11, 0, count)
        kept = first.copy()
        first[:] = 0
        np.testing.assert_array_equal(philox.words(11, 0, count), kept)


@pytest.mark.parametrize("offset", [0, 1, 5])
@pytest.mark.parametrize("count", [0, 1, 6, philox._PAGE])
def test_bits64_pairs_words_low_first_and_is_aligned(offset, count):
    bits = philox.bits64(5, offset, count)
    words = philox.words(5, offset, 2 * count).astype(np.uint64)
    assert bits.flags.aligned
    np.testing.assert_array_equal(bits, words[0::2] | words[1::2] << np.uint64(32))


@pytest.mark.parametrize("draw", [0, 1, LOW])
def test_element_bits_are_blocks_of_their_own_domain(draw):
    positions = np.array([0, 9, 2**33 + 1, TOP], np.uint64)
    bits = philox.element_bits(77, positions, draw)
    assert [tuple(row) for row in bits.tolist()] == [
        reference_pair(reference_block(77, p, 1, draw)) for p in positions.tolist()
    ]


def test_element_positions_follow_the_offset():
    assert philox.element_positions(TOP - 2, 3).tolist() == [TOP - 2, TOP - 1, TOP]
    assert philox.element_positions(5, 0).shape == (0,)


def test_split_and_fold_in_are_blocks_of_their_own_domains():
    key = 0x0123456789ABCDEF
    assert philox.split(key, 3) == [reference_pair(reference_block(key, i, 2, 0))[0] for i in range(3)]
    for data in (0, 1, 2**32, TOP):
        assert philox.fold_in(key, data) == reference_pair(reference_block(key, data, 3, 0))[0]


def test_derived_keys_are_distinct_and_prefix_stable():
    keys = philox.split(1, 5000)
    assert philox.split(1, 10) == keys[:10]
    assert philox.split(1, 0) == []
    folded = [philox.fold_in(1, i) for i in range(200)]
    assert len({*keys, *folded, *philox.split(2, 5000)}) == 10_200
    assert all(0 <= key <= TOP for key in keys + folded)


def test_retry_does_not_depend_on_the_other_elements():
    def propose(bits, indices):
        """Numbers below 1/8 of all, so that elements take very different numbers of draws."""
        return bits[:, 1], bits[:, 0] < np.uint64(1 << 61)

    positions = philox.element_positions(100, philox._RETRY_CHUNK + 50)
    together = philox.retry(4, positions, propose, np.uint64)
    for i in (0, 1, 17, philox._RETRY_CHUNK + 3):
        assert philox.retry(4, positions[i : i + 1], propose, np.uint64)[0] == together[i]
        draw = 1
        while (pair := reference_pair(reference_block(4, 100 + i, 1, draw)))[0] >= 1 << 61:
            draw += 1
        assert together[i] == pair[1]


def test_retry_gives_up_with_an_error():
    def never(bits, indices):
        return bits[:, 0], np.zeros(len(bits), bool)

    with pytest.raises(RuntimeError, match="no proposal accepted in 1000 draws for element 0"):
        philox.retry(0, philox.element_positions(0, 2), never)


def test_bits_are_balanced_and_streams_uncorrelated():
    """Every bit of 2**17 words, and of their differences, is 1 half of the time, within five standard deviations."""
    n = 1 << 17
    streams = [philox.words(0, 0, n), philox.words(1, 0, n), philox.words(philox.split(0, 1)[0], 0, n)]
    for words in (*streams, streams[0] ^ streams[1], streams[0] ^ streams[2], streams[0][1:] ^ streams[0][:-1]):
        ones = np.array([np.count_nonzero(words & np.uint32(1 << bit)) for bit in range(32)])
        assert np.abs(ones - len(words) / 2).max() < 5 * np.sqrt(len(words)) / 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: philox.words(-1, 0, 1), "key must be in"),
        (lambda: philox.words(1 << 64, 0, 1), "key must be in"),
        (lambda: philox.words(0, -1, 1), "offset must be in"),
        (lambda: philox.words(0, 0, -1), "count must not be negative, got -1"),
        (lambda: philox.words(0, TOP, 2), "the stream of a key ends after 2\\*\\*64 words"),
        (lambda: philox.element_positions(TOP, 2), "the stream of a key ends after 2\\*\\*64 words"),
        (lambda: philox.element_bits(-1, np.zeros(1, np.uint64), 0), "key must be in"),
        (lambda: philox.split(0, -1), "count must not be negative"),
        (lambda: philox.split(-1, 1), "key must be in"),
        (lambda: philox.fold_in(0, -1), "data must be in"),
        (lambda: philox.fold_in(0, 1 << 64), "data must be in"),
    ],
)
def test_out_of_range(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("value", [0.5, "1", None])
def test_only_integers_are_taken(value):
    with pytest.raises(TypeError):
        philox.words(value, 0, 1)
    with pytest.raises(TypeError):
        philox.words(0, value, 1)
    with pytest.raises(TypeError):
        philox.fold_in(0, value)
