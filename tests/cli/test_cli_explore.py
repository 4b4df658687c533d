"""`costar explore` serves a page whose answers are those of `costar whatif`, ends with Ctrl-C, and freezes pages."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_world import DOCUMENTS, REPOSITORY, Run, environment, start_process

import costar_cli as costar
from costar_cli.cli.exploring import explorer as module
from costar_cli.cli.exploring.explorer import MOST_FROZEN, MOST_LISTED, Explorer, grid_of
from costar_cli.errors import ExitCode, UsageError
from costar_cli.plans.untrusted import JsonObject
from costar_cli.reporting import NullReporter

Call = Callable[..., Run]
WORLD = REPOSITORY / "tests" / "contract" / "world"
PLANS = {"watch": [{}, {}, {}], "it's <b>": [{"chemotherapy": 1}, {}, {"chemotherapy": 1, "radiotherapy": 1}]}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(WORLD / "tumor", tmp_path_factory.mktemp("explore") / "a workspace"))


def explorer_of(world: str, *models: str, first: tuple[str, ...] = ()) -> Explorer:
    loaded = {name: costar.load_model(WORLD / world / f"{name}.h5", device="cpu").fitted for name in models}
    return Explorer(dataset=costar.read_dataset(WORLD / world / "data.h5"), models=loaded, first=first)


@pytest.fixture(scope="module")
def tumor() -> Explorer:
    return explorer_of("tumor", "model-mixed", "model-ridge")


def question(**more: Any) -> JsonObject:
    return JsonObject({"model": "model-mixed", "subject": "200", "origin": 6, "plans": PLANS} | more)


@pytest.fixture(scope="module")
def served(workspace: Path) -> Iterator[tuple["subprocess.Popen[str]", dict[str, Any]]]:
    """A process that serves, and the document that it printed."""
    words = ["explore", "-w", workspace, "-s", "200", "--json", "--no-browser", "--threads", "1"]
    process = start_process(*words, cwd=workspace.parent)
    lines: list[str] = []
    while not lines or lines[-1] != "}\n":
        lines.append(process.stdout.readline())
        assert lines[-1], process.stderr.read()
    yield process, json.loads("".join(lines))
    process.kill()
    process.communicate()


def ask(document: dict[str, Any], name: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    port, token = document["result"]["port"], document["result"]["address"].partition("token=")[2]
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    client.request(
        "POST", f"/api/{name}", json.dumps(asked), {"Content-Type": "application/json", "X-Costar-Token": token}
    )
    reply = client.getresponse()
    text = reply.read().decode()
    client.close()
    return reply.status, json.loads(text) if reply.headers.get_content_type() == "application/json" else {"page": text}


def test_the_document_has_the_address_of_a_page_that_answers(served: tuple[Any, dict[str, Any]]) -> None:
    _, document = served
    DOCUMENTS.validate(document)
    result = document["result"]
    assert document["status"] == "serving"
    assert set(result["models"]) == {"model", "model-target", "model-mixed", "model-ridge"}
    assert result["models"][0] == "model", "the workspace's default first"
    client = http.client.HTTPConnection("127.0.0.1", result["port"], timeout=60)
    client.request("GET", result["address"].partition(str(result["port"]))[2])
    page = client.getresponse().read().decode()
    client.close()
    assert '"first":"200"' in page
    assert result["address"].partition("token=")[2] not in page
    status, said = ask(document, "answer", question(subject="nobody"))
    assert (status, said["problem"]) == (400, "no subject nobody in the data set")
    assert ask(document, "subjects", {"text": "20"})[1]["subjects"]
    assert "<svg" in ask(document, "report", question())[1]["page"]


def test_the_copied_command_gives_the_same_answer(served: tuple[Any, dict[str, Any]], workspace: Path) -> None:
    status, answer = ask(served[1], "answer", question())
    assert status == 200
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = answer["command"].replace(" --plan -", " --json --plan -")
    done = subprocess.run(
        ["sh", "-c", command], cwd=workspace.parent, env=environment(PATH=path), capture_output=True, check=True
    )
    report = json.loads(done.stdout)["result"]
    for rows, names in (("estimates", ("estimate", "lower", "upper")),
                        ("differences", ("difference", "difference_lower", "difference_upper"))):  # fmt: skip
        for plan in answer["plans"]:
            mine = [row for row in report[rows] if row["plan"] == plan["name"]]
            for name, of in zip(names, ("estimate", "lower", "upper"), strict=True):
                given = plan["outcomes"][0].get(name, [])
                np.testing.assert_allclose(given, [row[of] for row in mine], rtol=1e-9)
    second = answer["plans"][1]
    assert second["outcomes"][0]["support"] == "".join(row["support"][0] for row in report["estimates"][3:])
    assert second["words"] == report["plans_in_words"]["it's <b>"]


def test_ctrl_c_ends_it_as_other_verbs_and_frees_the_port(served: tuple[Any, dict[str, Any]]) -> None:
    process, document = served
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (ExitCode.INTERRUPTED, "")
    assert "error: interrupted" in err
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections linger, a listener would not let it be
        free.bind(("127.0.0.1", document["result"]["port"]))


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["-s", "nobody"], ExitCode.USAGE, "no subject nobody"),
        (["-s", "1", "-s", "2"], ExitCode.USAGE, "2 subjects are too many"),
        (["--freeze", "page.txt"], ExitCode.USAGE, "a report is an HTML page"),
        (["--freeze", "page.html", "--port", "1"], ExitCode.USAGE, "has no port"),
        (["--freeze", "no/page.html"], ExitCode.STORAGE, "there is no folder"),
        (["--port", "70000"], ExitCode.USAGE, "port 70000 cannot be used"),
        (["--model", "nothing"], ExitCode.ARTIFACT, "no model found"),
    ],
)
def test_what_cannot_be_served_is_said_before(
    words: list[str], code: ExitCode, text: str, workspace: Path, call: Call
) -> None:
    run = call("explore", "-w", workspace, *words)
    assert run.code == code
    assert text in run.err
    assert run.out == ""


def test_a_port_in_use_is_an_error(workspace: Path, call: Call) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        run = call("explore", "-w", workspace, "--port", taken.getsockname()[1])
    assert (run.code, run.out) == (ExitCode.USAGE, "")
    assert "is in use" in run.err


def test_models_of_other_data_are_left_out_unless_they_are_named(workspace: Path, tmp_path: Path, call: Call) -> None:
    mixed = Path(shutil.copytree(workspace, tmp_path / "mixed"))
    shutil.copy(WORLD / "trial" / "model-mixed.h5", mixed / "model-other.h5")
    run = call("explore", "-w", mixed, "--freeze", "page.html")
    assert run.code == 0
    assert "`model-other` is left out" in run.err
    run = call("explore", "-w", mixed, "-m", "other", "--freeze", "page.html", "--overwrite")
    assert run.code == ExitCode.MISMATCH


def test_a_frozen_page_has_the_answers_of_the_grid_and_is_not_overwritten(
    workspace: Path, tumor: Explorer, call: Call
) -> None:
    words = ["explore", "-w", workspace, "-m", "mixed", "-s", "200", "-s", "201", "--freeze", "page.html"]
    run = call(*words, "--json")
    assert run.document["result"] == {
        "address": None, "port": None, "models": ["model-mixed"], "subjects": 2, "plans": 64,
    }  # fmt: skip
    page = Path("page.html").read_text("utf-8")
    found = re.search(r'id="content">(.*?)</script>', page)
    assert found
    content = json.loads(found[1])
    assert list(content["frozen"]) == ["200", "201"]
    frozen = content["frozen"]["200"]
    place = next(i for i, plan in enumerate(frozen["plans"]) if plan["values"] == [[1, 0], [0, 0], [1, 1]])
    live = tumor.answer(question(origin=frozen["origin"]))["plans"][1]["outcomes"][0]
    saved = frozen["plans"][place]["outcomes"][0]
    for name in ("estimate", "lower", "upper", "difference"):
        np.testing.assert_allclose(saved[name], live[name], rtol=1e-5)
    assert saved["support"] == live["support"]
    assert not any(any(row) for row in frozen["plans"][0]["values"]), (
        "the first gives nothing: others are compared with it"
    )
    assert "connect-src 'none'" in page
    assert call(*words).code == ExitCode.MISMATCH
    assert call(*words, "--overwrite").code == 0


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"model": "../../model"}, "no model"),
        ({"model": 3}, "must be text"),
        ({"subject": "../x"}, "no subject ../x"),
        ({"subject": ["200"]}, "must be text"),
        ({"origin": 10_000}, "outside the series"),
        ({"origin": True}, "must be a whole number"),
        ({"origin": "last"}, "must be a whole number"),
        ({"plans": {}}, "0 plans"),
        ({"plans": {str(i): [{}] for i in range(5)}}, "5 plans"),
        ({"plans": [[{}]]}, "must be an object"),
        ({"plans": {"a": [{}] * 4}}, "no list of up to 3 steps"),
        ({"plans": {"a": {"rule": "chemotherapy", "times": 3}}}, "no list of up to 3 steps"),
        ({"plans": {"a": [{"repeat": {}, "times": 1_000_000_000}]}}, "more than 1,000 steps"),
        ({"plans": {"a": [{"aspirin": 1}]}}, "no treatment 'aspirin'"),
        ({"plans": {"a": [{"chemotherapy": 7}]}}, "chemotherapy"),
        ({"plans": {"a\x1b[2J": [{}]}}, "printable"),
        ({"unsupported": 1}, "must be true or false"),
    ],
    ids=str,
)
def test_questions_that_do_not_fit_are_usage_errors(tumor: Explorer, more: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        tumor.answer(question(**more))
    assert text in str(caught.value)


def test_a_search_is_that_of_the_python_api(tumor: Explorer) -> None:
    asked = JsonObject(model="model-mixed", subject="200", origin=6, goal="minimise", outcome="tumour_volume",
                       when="at end", at_most={"chemotherapy": 1})  # fmt: skip
    found = tumor.search(asked)
    model = costar.load_model(WORLD / "tumor" / "model-mixed.h5", device="cpu")
    words = {"minimise": "tumour_volume at end", "at_most": "chemotherapy 1"}
    report = costar.search_plans(model, tumor.dataset, subject=200, origin=6, **words).to_json()
    assert found["plans"] == report["subjects"][0]["plans"]
    assert "--at-most 'chemotherapy 1'" in found["command"]
    for more in (
        {"outcome": "x"},
        {"when": "never"},
        {"goal": "level"},
        {"at_most": {"x": 1}},
        {"at_most": {"chemotherapy": -1}},
    ):
        with pytest.raises(UsageError):
            tumor.search(JsonObject(asked | more))


def test_long_searches_use_a_beam_and_say_so(tumor: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SEARCHED", 10)
    asked = JsonObject(model="model-mixed", subject="200", goal="maximise", outcome="tumour_volume", when="mean")
    assert f"--beam {module.BEAM}" in tumor.search(asked)["command"]


def test_subjects_are_listed_by_text_and_have_neighbours(tumor: Explorer) -> None:
    everyone = tumor.subjects(JsonObject())
    assert (everyone["count"], len(everyone["subjects"])) == (len(tumor.places), MOST_LISTED)
    assert [one["name"] for one in tumor.subjects(JsonObject(text="200"))["subjects"]] == ["200"]
    assert tumor.near(JsonObject(subject="200"))["subjects"] == ["199", "200", "201"]
    assert tumor.near(JsonObject(subject="0"))["subjects"][0] == "0"


def test_a_model_is_scored_on_another_domain_once(tumor: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    monkeypatch.setattr(module, "losses_on", lambda *given: calls.append(given) or [])
    fresh = Explorer(dataset=tumor.dataset, models=tumor.models)
    target = next(name for name, place in fresh.places.items() if place.part.domain == "target")
    for _ in range(3):
        fresh.answer(question(subject=target))
    assert len(calls) == 1


def test_doses_visits_and_ends_are_in_answers() -> None:
    trial = explorer_of("trial", "model-mixed")
    about = trial.describe()
    assert about["treatments"][0]["key"] == "dose"
    name = about["first"]
    answer = trial.answer(JsonObject(model="model-mixed", subject=name, plans={"a": [{"dose": 7.5}, {}], "b": [{}]}))
    assert answer["plans"][0]["values"] == [[7.5], [0.0]]
    assert answer["ends"] == "death"
    assert len(answer["plans"][0]["survival"]) == 2
    panel = trial.dataset.panel_of(trial.places[name])
    assert answer["origin"] == panel.length[0] - 1 - (panel.ends[0] == 1), "nothing follows a death"
    visits = explorer_of("visits", "model-mixed")
    assert [one.get("idle", 0) for one in visits.describe()["treatments"]] == [0, 6.0]
    frozen = visits.freeze()
    assert all(plan["values"][0][1] == 6.0 for answer in frozen.values() for plan in answer["plans"])


def test_a_grid_has_all_plans_or_one_span_of_each_treatment() -> None:
    two, idle = np.array([[0], [1]]), np.array([0])
    whole = grid_of(two, idle, 4)
    assert {tuple(plan[:, 0]) for plan in whole} == {tuple(map(int, f"{i:04b}")) for i in range(16)}
    spans = grid_of(two, idle, 20)
    assert len(spans) == 1 + 20 * 21 // 2
    assert not spans[0].any()
    assert all(np.abs(np.diff(plan[:, 0], prepend=0, append=0)).sum() <= 2 for plan in spans)
    many = grid_of(np.arange(20)[:, None], idle, 20)
    assert len(many) == 1 + 19 * 20
    assert all((np.diff(plan[:, 0] > 0) >= 0).all() for plan in many), "until the end"
    assert all(len(grid) <= MOST_FROZEN for grid in (whole, spans, many))
    with pytest.raises(UsageError, match="too many treatments"):
        grid_of(np.arange(100)[:, None], idle, 20)


def test_a_changed_plan_costs_little_more_than_the_models_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    explorer, asked, losses_on = explorer_of("tumor", "model-mixed"), [], module.losses_on
    monkeypatch.setattr(module, "losses_on", lambda *about: asked.append(about) or losses_on(*about))

    def cost(work: Callable[[], Any]) -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    days = [{"chemotherapy": 1}, {}, {}]
    changed = [question(plans={"watch": [{}, {}, {}], "b": days[n:] + days[:n]}) for n in range(3)] * 2
    explorer.answer(changed[0])
    pages, answers = [], []
    for one in changed:  # in turns, so that both meet the same machine
        read = explorer._question(one)
        pages.append(cost(lambda one=one: explorer.answer(one)))
        answers.append(cost(lambda read=read: read.report(reporter=NullReporter()).to_rows()))
    assert min(pages) < 3 * min(answers), "1.1 times where this was written"
    assert len(asked) == 1, "the errors of a domain are found once, and not again for each plan"
