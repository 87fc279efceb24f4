"""What neighbours bring on any parallel text: split it, build a datastore from one part, score on the other.

python benchmarks/domain_gain.py --corpus it.pt-en.tsv.gz --columns 2,3 --folder results/it
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from knn_seq import Datastore, Translator
from knn_seq.cli.options import columns_of
from knn_seq.corpus import SentencePair, open_corpus, split_corpus
from knn_seq.demo.run import write_tsv
from knn_seq.evaluate import compare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--columns", help="of source and target (default 1,2)")
    parser.add_argument("--model", default="firefox:pt-en")
    parser.add_argument("--test-sentences", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--beam-size", type=int, default=1, help="1, greedy, is how Firefox decodes")
    parser.add_argument("--folder", type=Path, default=Path("results/domain"))
    arguments = parser.parse_args()

    lines = open_corpus(arguments.corpus, columns=columns_of(arguments.columns))
    pairs = [line for line in lines if isinstance(line, SentencePair)]
    train, _, test = split_corpus(pairs, (0, arguments.test_sentences), arguments.seed)
    write_tsv(arguments.folder / "train.tsv", train)
    store = Datastore.build(arguments.folder / "store", arguments.model, arguments.folder / "train.tsv")
    translator = Translator(store, beam_size=arguments.beam_size)
    print(f"{len(train):,} training pairs, {len(store):,} entries, {len(test):,} test pairs; {translator.search}")
    comparison = compare(
        translator,
        [pair.source for pair in test],
        [pair.target for pair in test],
        {"base": {"weight": 0.0}, "knn": {"weight": translator.search.weight}},
    )
    print(comparison.table())
    (arguments.folder / "figures.json").write_text(json.dumps(comparison.to_dict(), indent=2))


if __name__ == "__main__":
    main()
