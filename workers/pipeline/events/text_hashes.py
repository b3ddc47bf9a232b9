"""The hash of texts that Spark's `xxhash64` computes: XXH64 of their UTF-8 bytes, for many texts at once.

Source: the specification of xxHash (XXH64). All numbers have 64 bits and wrap around.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SEED = 42
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)


def hash_texts(texts: pa.Array, seeds: np.ndarray) -> np.ndarray:
    """Return the hash of each text (int64). seeds: of each text, as int64; the hash of null is its seed."""
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    ends = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    lengths = pc.fill_null(pc.binary_length(texts), -1).to_numpy(zero_copy_only=False)
    hashes = seeds.astype(np.int64).view(np.uint64).copy()
    # Texts of equal length are rows of a matrix.
    for length in np.unique(lengths[lengths >= 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        characters = data[ends[rows][:, None] + np.arange(length)]
        hashes[rows] = _hash_rows(characters, hashes[rows])
    return hashes.view(np.int64)


def _hash_rows(characters: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    length = characters.shape[1]
    words = np.ascontiguousarray(characters[:, : length // 8 * 8]).view("<u8")
    hashes, done = (_hash_stripes(words, seeds), length // 32 * 4) if length >= 32 else (seeds + _P5, 0)
    hashes = hashes + np.uint64(length)
    for place in range(done, words.shape[1]):
        hashes = _rotate(hashes ^ _mix_word(words[:, place]), 27) * _P1 + _P4
    rest = length // 8 * 8
    if length - rest >= 4:
        half = np.ascontiguousarray(characters[:, rest : rest + 4]).view("<u4")[:, 0].astype(np.uint64)
        hashes = _rotate(hashes ^ (half * _P1), 23) * _P2 + _P3
        rest += 4
    for place in range(rest, length):
        hashes = _rotate(hashes ^ (characters[:, place].astype(np.uint64) * _P5), 11) * _P1
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))


def _hash_stripes(words: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Return the hash of all stripes of 32 bytes."""
    # The constants wrap around, too.
    lanes = [seeds + _P1 + _P2, seeds + _P2, seeds, seeds - _P1]
    for first in range(0, words.shape[1] // 4 * 4, 4):
        lanes = [_rotate(lane + words[:, first + place] * _P2, 31) * _P1 for place, lane in enumerate(lanes)]
    rotated = [_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)]
    hashes: np.ndarray = rotated[0] + rotated[1] + rotated[2] + rotated[3]
    for lane in lanes:
        hashes = (hashes ^ _mix_word(lane)) * _P1 + _P4
    return hashes


def _mix_word(words: np.ndarray) -> np.ndarray:
    return _rotate(words * _P2, 31) * _P1


def _rotate(numbers: np.ndarray, bits: int) -> np.ndarray:
    return (numbers << np.uint64(bits)) | (numbers >> np.uint64(64 - bits))
