"""Names and options of the parts that are made to be swapped."""

from __future__ import annotations

import dataclasses
from typing import get_type_hints

import pytest

from knn_seq import settings as settings_module
from knn_seq.combine import COMBINERS, Combiner
from knn_seq.combine.fixed import FixedCombiner
from knn_seq.errors import InvalidSetting, KnnSeqError
from knn_seq.registry import Option, Registry, check_options, parse_pairs

OPTIONS = {
    "cells": Option(4, "how many", int, 1),
    "ratio": Option(None, "how far", float, 1.0),
    "exact": Option(False, "whether", bool),
    "dtype": Option("float32", "of what", str, when_built=True),
}


def test_an_unknown_name_lists_those_there_are():
    with pytest.raises(InvalidSetting, match=r"There is no combiner 'entrop': choose from adaptive, distance, fixed"):
        COMBINERS.get("entrop")


def test_a_name_is_given_once():
    registry = Registry(Combiner, "combine", "combiner")
    registry.register("fixed")(FixedCombiner)
    registry.register("fixed")(FixedCombiner)  # the same class again: a module that was imported twice

    class Other(FixedCombiner):
        pass

    with pytest.raises(KnnSeqError, match=r"Two classes are called combiner 'fixed', .*FixedCombiner and .*Other"):
        registry.register("fixed")(Other)
    assert registry.get("fixed") is FixedCombiner


@pytest.mark.parametrize("part", [dict, FixedCombiner()])
def test_a_class_of_another_kind_is_refused(part):
    with pytest.raises(KnnSeqError, match="'odd' has to be a subclass of Combiner"):
        Registry(Combiner, "combine", "combiner").register("odd")(part)


def test_options_are_read_from_text_and_kept_as_values():
    given = parse_pairs("cells=3, ratio = 1.5 ,exact=true")
    assert check_options("The index 'x'", OPTIONS, given) == {"cells": 3, "ratio": 1.5, "exact": True}
    assert check_options("The index 'x'", OPTIONS, {"ratio": 2, "dtype": "float16"}) == {
        "ratio": 2.0,
        "dtype": "float16",
    }
    assert check_options("The index 'x'", OPTIONS, {"ratio": None}) == {"ratio": None}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"cell": 3}, r"The index 'x' has no option 'cell': it has cells, ratio, exact, dtype"),
        ({"cells": "many"}, r"takes as its option 'cells' a whole number from 1 on, not many"),
        ({"cells": 0}, "a whole number from 1 on, not 0"),
        ({"cells": 2.5}, "a whole number from 1 on, not 2.5"),
        ({"cells": True}, "a whole number from 1 on, not True"),
        ({"ratio": "nan"}, "a number from 1 on, not nan"),
        ({"exact": "maybe"}, "true or false, not maybe"),
        ({"cells": None}, "a whole number from 1 on, not None"),
    ],
)
def test_bad_options_are_one_sentence(given, sentence):
    with pytest.raises(InvalidSetting, match=sentence):
        check_options("The index 'x'", OPTIONS, given)


def test_what_is_decided_when_built_cannot_change_in_a_search():
    with pytest.raises(InvalidSetting, match="takes the option 'dtype' only when it is built"):
        check_options("The index 'x'", OPTIONS, {"dtype": "float16"}, per_search=True)


@pytest.mark.parametrize("text", ["nprobe", "=3", "a=1,b"])
def test_an_option_is_a_name_and_a_value(text):
    with pytest.raises(InvalidSetting, match="written as name=value"):
        parse_pairs(text)


@pytest.mark.parametrize("name", ["Model", "Build", "Search", "Decoding"])
def test_keyword_arguments_are_the_fields_of_their_settings(name):
    """An editor completes, and mypy checks, the dictionary types: each must have just the settings' fields."""
    kind, options = getattr(settings_module, f"{name}Settings"), getattr(settings_module, f"{name}Options")
    fields, hints = get_type_hints(kind), get_type_hints(options)
    assert set(hints) == set(fields) - ({"name"} if name == "Model" else set())
    for field, hint in hints.items():
        assert hint in (fields[field], fields[field] | None), field


def test_settings_are_overridden_entry_by_entry_where_they_are_mappings():
    base = settings_module.SearchSettings(index_options={"nprobe": 4, "ef_search": 9})
    changed = settings_module.override(base, {"index_options": {"nprobe": 8}, "k": None, "beam_size": 3})
    assert changed == dataclasses.replace(base, index_options={"nprobe": 8, "ef_search": 9})
