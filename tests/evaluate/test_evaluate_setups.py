from dataclasses import replace

import evaluate_worlds as worlds
import pytest

from costar_cli.data import Part
from costar_cli.errors import MismatchError, UsageError
from costar_cli.evaluation.setups import SETUPS, plan_jobs

DATA = worlds.dataset()
MODEL = worlds.oracle(DATA)
SOURCE = worlds.candidate(MODEL)
TARGET = worlds.candidate(MODEL, "target")


def names(jobs):
    return [(job.setup.name, job.candidate.domain) for job in jobs]


def test_a_source_model_is_scored_zero_shot_and_supervised():
    assert names(plan_jobs(DATA, [SOURCE], None)) == [("zero-shot", "source"), ("supervised", "source")]


def test_a_target_model_is_scored_few_shot():
    assert names(plan_jobs(DATA, [TARGET], None)) == [("few-shot", "target")]


def test_test_parts_are_those_of_the_paper():
    assert {name: setup.test for name, setup in SETUPS.items()} == {
        "zero-shot": Part("target", "test"),
        "few-shot": Part("target", "test"),
        "supervised": Part("source", "test"),
    }


def test_only_the_setups_asked_for():
    assert names(plan_jobs(DATA, [SOURCE, TARGET], ["few-shot"])) == [("few-shot", "target")]


def test_a_setup_without_its_model_is_an_error_only_when_asked_for():
    with pytest.raises(MismatchError, match="few-shot cannot be scored") as caught:
        plan_jobs(DATA, [SOURCE], ["few-shot"])
    assert "costar finetune --domain target" in caught.value.fix


def test_data_without_a_target_still_give_the_supervised_rows():
    source_only = replace(DATA, queries={Part("source", "test"): DATA.queries["source", "test"]})
    assert names(plan_jobs(source_only, [SOURCE, TARGET], None)) == [("supervised", "source")]
    with pytest.raises(MismatchError, match="no target/test queries"):
        plan_jobs(source_only, [SOURCE], ["zero-shot"])


def test_data_without_any_answered_queries_are_an_error():
    with pytest.raises(MismatchError) as caught:
        plan_jobs(replace(DATA, queries={}), [SOURCE], None)
    assert len(caught.value.details) == 2


def test_unknown_setups_and_missing_models_are_usage_errors():
    with pytest.raises(UsageError, match="zero-shoot"):
        plan_jobs(DATA, [SOURCE], ["zero-shoot"])
    with pytest.raises(UsageError, match="no model"):
        plan_jobs(DATA, [], None)


def test_two_models_of_one_name_in_one_setup_are_an_error_but_pretrained_and_scratch_are_told_apart():
    with pytest.raises(UsageError, match="two models are called 'COSTAR'"):
        plan_jobs(DATA, [SOURCE, worlds.candidate(MODEL)], None)
    scratch = worlds.candidate(MODEL, init="scratch")
    assert scratch.label == "COSTAR (scratch)"
    assert len(plan_jobs(DATA, [SOURCE, scratch], ["zero-shot"])) == 2


def test_labelled_target_subjects_count_those_the_model_was_selected_on():
    trained_on = {"source/train": 100, "target/train": 10, "target/val": 20}
    assert worlds.candidate(MODEL, "target", trained_on=trained_on).labelled_target_subjects == 30
    assert SOURCE.labelled_target_subjects == 0
