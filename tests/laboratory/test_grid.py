"""The grid: it makes what is missing, survives kills, and refuses what does not belong together or is written wrong."""

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.laboratory.grid import run_grid
from benchmarks.laboratory.grid_run import AlgorithmChoice, GridRun, make_specs, parse_algorithm, parse_seeds
from benchmarks.laboratory.run_store import GRID, RUNS, GridPlan, RunStore, load_comparison, read_records
from tests import ready_processes
from tests.laboratory.synthetic_runs import made_up_run, record_of
from tests.waiting import has_ended, wait_for

ROOT = Path(__file__).resolve().parents[2]


def plan_of(*algorithms: str, seeds: int = 2, envs: tuple[str, ...] = ("short",), **more: Any) -> GridPlan:
    return GridPlan([parse_algorithm(text) for text in algorithms or ("grpo",)], list(envs), list(range(seeds)), **more)


def breaks_once(spec: GridRun, folder: Path) -> dict[str, Any]:
    """Raises for seed 1 and dies for seed 2, the first time."""
    marker = folder.parents[1] / f"tried-{spec.seed}"
    if marker.exists() or spec.seed == 0:
        return made_up_run(spec, folder)
    marker.touch()
    if spec.seed == 1:
        raise RuntimeError("no luck")
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def never_ends(spec: GridRun, folder: Path) -> dict[str, Any]:
    if spec.seed == 0:
        return made_up_run(spec, folder)
    (folder / "pid").write_text(str(os.getpid()))
    time.sleep(600)
    return {}


def threads_of(spec: GridRun, folder: Path) -> dict[str, Any]:
    return made_up_run(spec, folder) | {"versions": {"threads": os.environ["OMP_NUM_THREADS"], "process": os.getpid()}}


def test_a_grid_makes_all_runs_and_more_seeds_are_added_to_it(tmp_path: Path) -> None:
    first = run_grid(plan_of(), tmp_path, threads_of, processes=1)
    assert [record["seed"] for record in first.made] == [0, 1]
    assert {record["versions"]["threads"] for record in first.made} == {"1"}
    assert len({record["versions"]["process"] for record in first.made}) == 1  # which imports once
    assert not any((tmp_path / "runs").iterdir())  # the folders of finished runs are gone
    more = run_grid(plan_of("arpo", seeds=1), tmp_path, made_up_run)
    assert {(record["label"], record["seed"]) for record in more.made} == {("arpo", 0), ("arpo", 1)}
    assert more.stored == 2
    plan, records = load_comparison(tmp_path)
    assert (plan.seeds, len(records)) == ([0, 1], 4)


def test_a_run_that_breaks_is_recorded_with_its_error_and_made_again(tmp_path: Path) -> None:
    first = run_grid(plan_of(seeds=3), tmp_path, breaks_once, processes=3)
    errors = {record["seed"]: record["error"] for record in first.failed}
    assert "RuntimeError: no luck (test_grid.py, line" in errors[1]
    assert "SIGKILL" in errors[2]
    assert "no luck" in (tmp_path / "runs" / "grpo-short-1" / "output.txt").read_text()
    again = run_grid(plan_of(seeds=2), tmp_path, breaks_once, processes=3)
    assert sorted(record["seed"] for record in again.made) == [1, 2]
    assert not again.failed
    assert len(read_records(tmp_path / RUNS)) == 5  # the failures are still there
    assert {record["status"] for record in load_comparison(tmp_path)[1]} == {"finished"}


def test_half_a_line_is_no_run(tmp_path: Path) -> None:
    specs = plan_of(seeds=2).specs()
    with RunStore(tmp_path) as store:
        store.extend(plan_of(seeds=2))
        store.add(record_of(specs[0]))
    with (tmp_path / RUNS).open("ab") as file:
        file.write(b'{"label": "grpo", "env": "short", "seed": 1, "status": "fin')
    with RunStore(tmp_path) as store:
        assert store.missing(specs) == specs[1:]
        store.add(record_of(specs[1]))
    assert [record["seed"] for record in read_records(tmp_path / RUNS)] == [0, 1]


def test_when_the_grid_is_killed_its_runs_end_and_what_is_finished_is_kept(tmp_path: Path) -> None:
    script = tmp_path.parent / f"{tmp_path.name}.py"
    script.write_text(
        "from benchmarks.laboratory.grid import run_grid\nfrom tests.laboratory.test_grid import plan_of, never_ends\n"
        f"if __name__ == '__main__':\n    run_grid(plan_of(seeds=2), {str(tmp_path)!r}, never_ends)\n"
    )
    process = ready_processes.start(str(script), folder=ROOT, said=script.with_suffix(".out"))
    pid, runs = tmp_path / "runs" / "grpo-short-1" / "pid", tmp_path / RUNS
    wait_for(lambda: pid.exists() and pid.read_text() and runs.exists() and read_records(runs), 60)
    with pytest.raises(BlockingIOError, match="another process"):
        RunStore(tmp_path)
    process.kill()
    process.join(60)
    wait_for(lambda: has_ended(int(pid.read_text())))
    with RunStore(tmp_path) as store:
        assert [spec.seed for spec in store.missing(plan_of(seeds=2).specs())] == [1]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (plan_of(settings={"learning_rate": 1e-3}), "setting learning_rate was 0.0003 and is 0.001"),
        (
            GridPlan([AlgorithmChoice("grpo", "arpo")], ["short"], [0], settings={"learning_rate": 3e-4}),
            "'grpo' was grpo and is arpo",
        ),
        (GridPlan([AlgorithmChoice("grpo", "grpo")], ["short"], [3, 3]), "seed given twice: 3"),
    ],
)
def test_what_does_not_belong_to_a_folder_is_refused_by_name(tmp_path: Path, other: GridPlan, words: str) -> None:
    with RunStore(tmp_path) as store:
        store.add(record_of(store.extend(plan_of(seeds=1, settings={"learning_rate": 3e-4})).specs()[0]))
    before = [(tmp_path / name).read_bytes() for name in (GRID, RUNS)]
    with pytest.raises(ValueError, match=words):
        run_grid(other, tmp_path, made_up_run)
    assert [(tmp_path / name).read_bytes() for name in (GRID, RUNS)] == before


def test_a_line_that_is_no_run_is_named(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.extend(plan_of())
    (tmp_path / RUNS).write_text('{"label": "grpo", "env": "short", "seed": 0, "status": "odd"}\n')
    with pytest.raises(ValueError, match=r"runs.jsonl, line 1: .* 'odd'"):
        RunStore(tmp_path)
    (tmp_path / GRID).write_text("[]")
    with pytest.raises(ValueError, match=r"grid.json cannot be read"):
        RunStore(tmp_path)


def test_an_algorithm_may_have_settings_and_a_label() -> None:
    assert parse_algorithm("reinforce++") == AlgorithmChoice("reinforce++", "reinforce++")
    text = "arpo:branch_alpha=0.6"
    assert parse_algorithm(text) == AlgorithmChoice(text, "arpo", {"branch_alpha": 0.6})
    settings = {"branch_alpha": 0.1, "initial_rollouts": 4, "betas": [0.9, 0.95], "packing": "auto"}
    given = "low=arpo:branch_alpha=1e-1,initial_rollouts=4,betas=[0.9, 0.95],packing=auto"
    assert parse_algorithm(given) == AlgorithmChoice("low", "arpo", settings)


@pytest.mark.parametrize(
    ("texts", "seeds"), [(["3"], [0, 1, 2]), (["3", "1"], [3, 1]), (["5-7"], [5, 6, 7]), (["0-1", "4"], [0, 1, 4])]
)
def test_seeds_are_a_number_a_list_or_ranges(texts: list[str], seeds: list[int]) -> None:
    assert parse_seeds(texts) == seeds


def test_runs_go_seed_by_seed_and_an_algorithms_own_settings_count_more() -> None:
    algorithms = [parse_algorithm("grpo"), parse_algorithm("x=arpo:lr=2")]
    algorithms.append(parse_algorithm("again=grpo:seed_offset=1000"))
    specs = make_specs(algorithms, ["short"], [0, 1], {"tokens": 9}, {"lr": 1})
    order = [("grpo", 0), ("x", 0), ("again", 1000), ("grpo", 1), ("x", 1), ("again", 1001)]
    assert [(spec.label, spec.seed) for spec in specs] == order
    assert specs[1] == GridRun("x", "arpo", "short", 0, {"tokens": 9}, {"lr": 2})
    with pytest.raises(ValueError, match="again: seed_offset=-1"):
        make_specs([parse_algorithm("again=grpo:seed_offset=-1")], ["short"], [7], {}, {})


def test_runs_have_folders_of_their_own_that_every_file_system_takes() -> None:
    names = ["a:b", "a;b", "a_b", "é", "è", "x" * 300, "x" * 301, "grpo"]
    folders = {GridRun(label, "grpo", "short", 0).folder for label in names}
    assert len(folders) == len(names)
    assert all(len(folder) < 100 and re.fullmatch(r"[A-Za-z0-9_.+-]+", folder) for folder in folders)
    assert "grpo-short-0" in folders
