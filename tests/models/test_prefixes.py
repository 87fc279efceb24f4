"""Which row of the step before each row continues."""

from __future__ import annotations

import torch

from knn_seq.models.prefixes import PrefixRows, last_tokens


def test_rows_follow_their_prefixes_while_sentences_enter_and_leave():
    rows = PrefixRows()
    steps = [
        ([0, 0, 1, 1], [[], [], [], []], [-1, -1, -1, -1]),
        ([0, 0, 1, 1], [[5], [6], [5], [6]], None),  # beams begin alike: which of the two is all the same
        ([0, 0, 1, 1], [[6, 7], [6, 8], [5, 7], [6, 7]], [1, 1, 2, 3]),
        ([1, 1, 2, 2], [[6, 7, 9], [5, 7, 9], [-1] * 3, [-1] * 3], [3, 2, -1, -1]),  # 0 is done, 2 enters
        ([1, 1, 2, 2], [[6, 7, 9, 4], [6, 7, 9, 3], [4, -1, -1, -1], [5, -1, -1, -1]], [0, 0, None, None]),
    ]
    for sentences, prefixes, expected in steps:
        parents = rows.parents(torch.tensor(sentences), torch.tensor(prefixes).reshape(len(sentences), -1)).tolist()
        if expected is None:
            assert [sentences[parent] for parent in parents] == sentences
            continue
        for row, (parent, wanted) in enumerate(zip(parents, expected, strict=True)):
            assert parent == wanted or (wanted is None and sentences[parent] == sentences[row])


def test_last_tokens():
    prefixes = torch.tensor([[4, 5, 6], [7, -1, -1], [-1, -1, -1]])
    assert last_tokens(prefixes).tolist() == [6, 7, 0]
    assert last_tokens(prefixes[:, :0]).tolist() == [0, 0, 0]
