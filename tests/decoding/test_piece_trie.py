from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from knn_seq.decoding.piece_trie import PieceTrie

PIECES = st.lists(st.integers(0, 3), min_size=1, max_size=4)


@given(st.lists(PIECES, max_size=6), st.lists(st.integers(0, 3), max_size=5))
def test_what_follows_is_what_a_list_of_all_sequences_says(sequences, begun):
    node = PieceTrie(sequences).after(begun)
    continued = [sequence for sequence in sequences if sequence[: len(begun)] == begun]
    if not continued:
        assert node is None or not begun
    else:
        assert set(node.next) == {sequence[len(begun)] for sequence in continued if len(sequence) > len(begun)}
        assert node.complete == (begun in sequences)
