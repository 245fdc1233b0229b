"""Is each row claimed once, in order, and claimed anew when its lease has run out?"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pellucid
import pytest
from pellucid import KEY, F, WrongClass
from undone import undone

Database = pellucid.Database
NEW = F.state == "new"
RUNNING = {"state": "running"}
# A lease that is over when the next statement runs.
SHORT = 1e-6


def queue(db: Database, count: int = 3) -> Any:
    """A table of jobs that wait."""
    jobs = db.table("jobs")
    jobs.extend({"state": "new", "n": number, "tries": 0} for number in range(count))
    return jobs


def test_a_job_is_claimed_finished_and_gone_from_the_queue(db: Database) -> None:
    jobs = queue(db)
    claim = jobs.claim(NEW, RUNNING)
    assert (claim.key, claim.value) == (0, {"state": "running", "n": 0, "tries": 0})
    assert jobs[0].state == "running"
    claim.update(progress=0.5)
    assert jobs[0].progress == 0.5
    claim.finish({"state": "done"}, result=F.n + 7)
    assert jobs[0] == {"state": "done", "n": 0, "tries": 0, "progress": 0.5, "result": 7}
    other = jobs.claim(NEW, RUNNING)
    other.delete()
    assert [row.state for row in jobs.values()] == ["done", "new"]
    assert jobs.claim(NEW, RUNNING).key == 2
    assert jobs.claim(NEW, RUNNING) is None
    assert db.check() == []


def test_jobs_come_in_the_order_of_keys_or_in_the_order_asked_for(db: Database) -> None:
    jobs = queue(db, 4)
    jobs[2].n = 10
    assert jobs.claim(NEW, RUNNING, order_by=F.n.desc()).key == 2
    assert jobs.claim(NEW, RUNNING, order_by=("tries", F.n.desc())).key == 3
    assert jobs.claim(NEW, RUNNING, order_by="n").key == 0
    assert jobs.claim(NEW & (F.n > 0), RUNNING).key == 1
    assert jobs.claim(NEW, RUNNING) is None


def test_a_tuple_of_names_is_one_path_to_order_by(db: Database) -> None:
    jobs = db.table("jobs")
    jobs.extend({"state": "new", "stats": {"n": n}, "n": -n} for n in (3, 1, 2))
    assert jobs.claim(NEW, RUNNING, order_by=("stats", "n")).key == 1
    assert jobs.claim(NEW, RUNNING, order_by=["state", F.n]).key == 0
    assert jobs.claim(NEW, RUNNING, order_by=(F.state, F.n)).key == 2


def test_a_block_that_does_not_finish_gives_the_row_back_as_it_was(db: Database) -> None:
    jobs = queue(db, 1)
    jobs[0].who = {"name": "first"}
    before = jobs[0].to_dict()
    fields = {"state": "running", "who": "second", "started": 5}
    error = ZeroDivisionError()
    claim = jobs.claim(NEW, fields)
    assert claim.value == {**before, **fields}
    with pytest.raises(ZeroDivisionError), claim:
        raise error
    assert jobs[0] == before
    with jobs.claim(NEW, fields):
        pass
    assert jobs[0] == before
    claim = jobs.claim(NEW, fields)
    claim.give_back()
    assert jobs[0] == before
    with pytest.raises(pellucid.LeaseLost, match="has ended"):
        claim.finish()


def test_computed_fields_stay_when_a_row_is_given_back(db: Database) -> None:
    jobs = queue(db, 1)
    for tries in (1, 2, 3):
        with jobs.claim(NEW & (F.tries < 3), {**RUNNING, "tries": F.tries + 1}) as claim:
            assert claim.value["tries"] == tries
    assert jobs.claim(NEW & (F.tries < 3), RUNNING) is None
    assert jobs[0] == {"state": "new", "n": 0, "tries": 3}


def test_a_lease_that_ran_out_lets_others_claim_and_refuses_the_late_write(db: Database) -> None:
    jobs = queue(db, 2)
    late = jobs.claim(NEW, RUNNING, lease=SHORT)
    time.sleep(0.01)
    for write in (late.finish, late.update, late.delete, late.give_back, late.renew):
        with pytest.raises(pellucid.LeaseLost, match="ran out"):
            write()
    # Leases are looked for ten times a second while there are other rows to claim.
    assert {jobs.claim(NEW, RUNNING).key, jobs.claim(NEW, RUNNING).key} == {0, 1}
    before = jobs[0].to_dict()
    for write in (late.finish, late.update, late.delete, late.give_back, late.renew):
        with pytest.raises(pellucid.LeaseLost, match="taken back"):
            write()
    late.__exit__(None, None, None)
    assert jobs[0] == before


def test_a_row_that_was_put_or_deleted_meanwhile_is_no_longer_claimed(db: Database) -> None:
    jobs = queue(db, 2)
    first, second = jobs.claim(NEW, RUNNING), jobs.claim(NEW, RUNNING)
    jobs[0] = {"state": "new"}
    del jobs[1]
    for claim in (first, second):
        with pytest.raises(pellucid.LeaseLost, match=r"was deleted|has put the row anew"):
            claim.finish(state="done")
    assert dict(jobs) == {0: {"state": "new"}}


def test_a_renewed_lease_holds_for_longer(db: Database) -> None:
    jobs = queue(db, 1)
    claim = jobs.claim(NEW, RUNNING, lease=0.5)
    claim.renew(1000)
    assert claim.until > time.time() + 900
    time.sleep(0.6)
    assert jobs.claim(NEW, RUNNING) is None
    claim.finish(state="done")
    assert jobs[0].state == "done"


def test_a_condition_that_stays_true_claims_each_row_once_all_the_same(db: Database) -> None:
    jobs = queue(db, 3)
    claims = [jobs.claim(F.n >= 0, {}) for _ in range(4)]
    assert [claim and claim.key for claim in claims] == [0, 1, 2, None]
    claims[1].give_back()
    assert jobs.claim(F.n >= 0, {"who": 1}).key == 1


def test_an_index_finds_the_leases_and_is_not_needed(db: Database) -> None:
    jobs = queue(db, 3)
    jobs.create_index("by_state", F.state)
    jobs.claim(NEW, RUNNING, lease=SHORT)
    assert "_leases" in [index.name for index in jobs.indexes()]
    jobs.drop_index("_leases")
    time.sleep(0.15)
    assert [jobs.claim(NEW, RUNNING).key for _ in range(3)] == [0, 1, 2]
    assert db.check() == []


def test_many_threads_claim_each_job_once(db: Database) -> None:
    jobs = queue(db, 40)
    jobs.create_index("by_state", F.state)
    claimed: list[int] = []

    def work() -> None:
        while (claim := jobs.claim(NEW, RUNNING)) is not None:
            claimed.append(claim.key)
            claim.finish(state="done")

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert sorted(claimed) == list(range(40))
    assert jobs.where(F.state == "done").count() == 40


def test_a_worker_waits_until_there_is_a_job(db: Database) -> None:
    jobs = db.table("jobs")
    begun = time.monotonic()
    assert jobs.claim(NEW, RUNNING, timeout=0.2) is None
    assert time.monotonic() - begun >= 0.2
    found: list[Any] = []
    worker = threading.Thread(target=lambda: found.append(jobs.claim(NEW, RUNNING, timeout=60)))
    worker.start()
    jobs["other"] = {"state": "done"}
    jobs["a"] = {"state": "new"}
    worker.join(30)
    assert [claim.key for claim in found] == ["a"]


def test_a_waiting_worker_gets_what_a_lease_that_runs_out_gives_back(db: Database) -> None:
    jobs = queue(db, 1)
    jobs.claim(NEW, RUNNING, lease=0.3)
    claim = jobs.claim(NEW, RUNNING, timeout=None)
    assert claim.key == 0


def test_a_claim_and_its_end_are_part_of_the_transaction_around_them(db: Database) -> None:
    jobs = queue(db, 2)
    with undone(db):
        jobs.claim(NEW, RUNNING)
    assert jobs[0].state == "new"
    claim = jobs.claim(NEW, RUNNING)
    with db.transaction():
        claim.finish(state="done")
        jobs.append({"state": "new", "n": 9})
    assert [row.state for row in jobs.values()] == ["done", "new", "new"]
    with db.transaction(), pytest.raises(pellucid.TransactionError, match="transaction"):
        jobs.claim(NEW, RUNNING, timeout=1)


def test_an_end_that_is_rolled_back_leaves_the_row_claimed(db: Database) -> None:
    jobs = queue(db, 4)
    ends: list[Callable[[Any], None]] = [
        lambda claim: claim.finish(state="done"),
        lambda claim: claim.delete(),
        lambda claim: claim.give_back(),
    ]
    for number, end in enumerate(ends):
        claim = jobs.claim(NEW, RUNNING)
        with undone(db):
            end(claim)
        assert jobs[number].state == "running"
        claim.finish(state="finished")
        assert (jobs[number].state, "_lease" in jobs[number]) == ("finished", False)
        with pytest.raises(pellucid.LeaseLost, match="has ended"):
            claim.finish(state="again")
    with jobs.claim(NEW, RUNNING) as claim:
        until = claim.until
        with undone(db):
            claim.renew(1000)
            claim.finish(state="done")
        assert claim.until == until
    # The block gives the row back.
    assert (jobs[3].state, "_lease" in jobs[3]) == ("new", False)
    claim = jobs.claim(NEW, RUNNING)
    with db.transaction():
        claim.finish(state="done")
        with pytest.raises(pellucid.LeaseLost, match="no lease of this claim any more"):
            claim.finish(state="again")


def test_a_lease_that_cannot_be_undone_keeps_no_other_row_from_being_claimed(db: Database) -> None:
    jobs = db.table("jobs")
    jobs.create_index("slots", F.slot, unique=True)
    jobs.update({name: {"state": "new", "slot": number} for number, name in enumerate("abc")})
    for number in (100, 101):
        jobs.claim(NEW, {"state": "running", "slot": number}, lease=0.01)
    # The former value of one of them is another's by now.
    jobs["x"] = {"state": "done", "slot": 0}
    time.sleep(0.2)
    with pytest.warns(pellucid.DatabaseWarning, match="row 'a' of table 'jobs' has run out.*not take"):
        claimed = [jobs.claim(NEW, RUNNING).key for _ in range(2)]
    assert claimed == ["b", "c"]
    assert jobs["b"].slot == 1
    # Nor does a worker that waits look again and again.
    begin = time.process_time()
    with pytest.warns(pellucid.DatabaseWarning, match="has run out"):
        assert jobs.claim(NEW, RUNNING, timeout=0.5) is None
    assert time.process_time() - begin < 0.4


def test_a_row_whose_large_value_others_replace_is_claimed_or_not(db: Database) -> None:
    jobs = db.table("jobs")
    jobs[0] = {"state": "new", "blob": b"0" * 40_000}
    is_over = threading.Event()

    def replace() -> None:
        number = 0
        while not is_over.wait(0.0005):
            number += 1
            jobs.where(KEY == 0).update(blob=b"%d" % (number % 10) * 40_000)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for fields in (RUNNING, {"state": "running", "blob": None}):
            for _ in range(50):
                with jobs.claim(NEW, fields, timeout=20) as claim:
                    assert claim.value["state"] == "running"
    finally:
        is_over.set()
        thread.join()
    assert jobs[0].keys() == {"state", "blob"}


def work(jobs: Any, errors: list[BaseException]) -> None:
    """Put jobs and claim them, until an error comes."""
    try:
        while True:
            jobs.append({"state": "new"})
            jobs.claim(NEW, RUNNING, timeout=None).finish(state="done")
    except BaseException as error:
        errors.append(error)


@pytest.mark.parametrize("where", ["file", "memory"])
def test_a_worker_learns_that_another_thread_has_closed_the_database(path: Path, where: str) -> None:
    for _ in range(10):
        database = pellucid.open(path if where == "file" else ":memory:")
        errors: list[BaseException] = []
        workers = [threading.Thread(target=work, args=(database.table("jobs"), errors)) for _ in range(2)]
        for worker in workers:
            worker.start()
        time.sleep(0.02)
        database.close()
        for worker in workers:
            worker.join(60)
        assert [type(error) for error in errors] == [pellucid.Closed] * 2, errors


def test_claims_say_what_is_wrong_with_their_arguments(db: Database) -> None:
    jobs = queue(db, 1)
    for lease in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"^lease"):
            jobs.claim(NEW, RUNNING, lease=lease)
    with pytest.raises(ValueError, match="timeout="):
        jobs.claim(NEW, RUNNING, timeout=-1)
    for name in ("a.b", 3, "_lease", "_expires"):
        with pytest.raises(ValueError, match="cannot be set here"):
            jobs.claim(NEW, {name: 1})
    with pytest.raises(TypeError, match="dict"):
        jobs.claim(NEW, "running")
    for wrong in (True, "5", None):
        with pytest.raises(TypeError, match="lease has to be a number of seconds or a timedelta"):
            jobs.claim(NEW, RUNNING, lease=wrong)
    with pytest.raises(TypeError, match="timeout has to be a number of seconds"):
        jobs.claim(NEW, RUNNING, timeout="5")
    with pytest.raises(ValueError, match="lease="):
        jobs.claim(NEW, RUNNING, lease=10**400)
    with jobs.claim(
        NEW, RUNNING, lease=datetime.timedelta(seconds=100), timeout=datetime.timedelta(0)
    ) as claim:
        assert 90 < claim.until - time.time() <= 100
        with pytest.raises(TypeError, match="the fields to set are a dict"):
            claim.finish("done")
    with pytest.raises(TypeError):
        jobs.claim("new", RUNNING)
    with pytest.raises(pellucid.UnsupportedValue):
        jobs.claim(NEW, {"state": object()})
    claim = jobs.claim(NEW, RUNNING)
    with pytest.raises(ValueError, match="cannot be set here"):
        claim.finish({"a.b": 1})
    with pytest.raises(ValueError, match="lease="):
        claim.renew(0)
    claim.finish()
    jobs["number"] = 5
    with pytest.raises(TypeError, match="records"):
        jobs.claim(KEY == "number", {})


class State(enum.Enum):
    NEW = "new"
    RUNNING = "running"
    DONE = "done"


@dataclasses.dataclass
class Job:
    state: State
    n: int = 0
    tries: int = 0


def test_a_table_with_a_class_gives_instances(db: Database) -> None:
    jobs, rows = db.table("jobs", type=Job), db.table("jobs")
    jobs["a"] = Job(State.NEW, 6)
    fields = {"state": State.RUNNING, "tries": F.tries + 1}
    with jobs.claim(F.state == State.NEW, fields) as claim:
        assert claim.value == jobs["a"] == Job(State.RUNNING, 6, 1)
        assert jobs.conform() == []
        claim.renew()
        claim.update(n=7)
    assert jobs["a"] == Job(State.NEW, 7, 1)
    with jobs.claim(F.state == "new", fields, lease=0.05):
        time.sleep(0.06)
    while (claim := jobs.claim(F.state == State.NEW, fields)) is None:
        time.sleep(0.01)
    claim.finish(state=State.DONE)
    assert jobs["a"] == Job(State.DONE, 7, 3)
    assert rows["a"] == {"state": "done", "n": 7, "tries": 3}


def test_a_claim_stores_nothing_that_the_class_of_the_table_refuses(db: Database) -> None:
    jobs, rows = db.table("jobs", type=Job), db.table("jobs")
    jobs["a"] = Job(State.NEW, 6)
    before = rows["a"].to_dict()
    for fields in ({"state": "no state"}, {"nosuch": 5}):
        with pytest.raises(WrongClass):
            jobs.claim(NEW, fields)
    assert rows["a"] == before
    claim = jobs.claim(NEW, {"state": State.RUNNING})
    claimed = rows["a"].to_dict()
    for fields in ({"state": "no state"}, {"nosuch": 5}):
        with pytest.raises(WrongClass):
            claim.update(fields)
        with pytest.raises(WrongClass):
            claim.finish(fields)
    assert rows["a"] == claimed
    claim.give_back()
    assert rows["a"] == before


def test_a_table_of_any_objects_says_how_its_rows_are_claimed(db: Database) -> None:
    jobs = db.table("jobs", type=object)
    jobs["a"] = {"state": "new"}
    with pytest.raises(TypeError, match=r"type=object.*without it, db.table\('jobs'\)"):
        jobs.claim(NEW, RUNNING)
    jobs.put("b", {"state": "old"}, expire=100)
    assert jobs.expire() == 0


@pytest.mark.parametrize("cls", [None, Job])
def test_a_claim_follows_its_table_to_another_name(db: Database, cls: Any) -> None:
    jobs = db.table("jobs", type=cls)
    jobs.extend(Job(State.NEW, n) if cls else {"state": "new", "n": n} for n in range(3))
    first = jobs.claim(NEW, RUNNING)
    db.rename_table("jobs", "old")
    db.table("jobs")[0] = {"state": "new", "n": 100}
    first.update(n=7)
    first.finish(state="done")
    second = jobs.claim(NEW, RUNNING)
    assert (first.key, second.key) == (0, 1)
    second.give_back()
    assert [(row.state, row.n) for row in db.table("old").values()] == [("done", 7), ("new", 1), ("new", 2)]
    assert db.table("jobs")[0] == {"state": "new", "n": 100}


@pytest.mark.parametrize("fields", [{}, {"tries": F.tries + 1}])
def test_an_update_that_changes_nothing_returns(db: Database, fields: dict[str, Any]) -> None:
    jobs = db.table("jobs")
    jobs["a"] = {"state": "new"}
    claim = jobs.claim(NEW, RUNNING)
    claim.update(fields)
    with db.transaction():
        claim.update(fields)
    claim.finish()
    assert jobs["a"] == {"state": "running"}


def test_an_edit_of_an_instance_keeps_its_lease_and_its_time(db: Database) -> None:
    jobs, rows = db.table("jobs", type=Job), db.table("jobs")
    jobs.put("a", Job(State.NEW), expire=100)
    claim = jobs.claim(NEW, RUNNING)
    before = rows["a"].to_dict()
    with jobs.edit("a") as job:
        job.n = 5
    assert rows["a"].to_dict() == {**before, "n": 5}
    claim.give_back()
    assert (jobs["a"], "_expires" in rows["a"]) == (Job(State.NEW, 5), True)


@pytest.mark.parametrize("cls", [dict, object])
def test_an_edit_of_a_dict_changes_all_that_it_shows(db: Database, cls: type) -> None:
    jobs = db.table("jobs", type=cls)
    jobs.put("a", {"state": "new"}, expire=100)
    with jobs.edit("a") as job:
        job["_expires"] = 5.0
    assert jobs["a"] == {"state": "new", "_expires": 5.0}
    with jobs.edit("a") as job:
        del job["_expires"]
    assert jobs["a"] == {"state": "new"}


def test_a_table_whose_creation_was_rolled_back_is_forgotten(db: Database) -> None:
    jobs = db.table("jobs", type=Job)
    with undone(db):
        jobs["a"] = Job(State.NEW)
        jobs.increment("a", "n")
    jobs["a"] = Job(State.NEW, 5)
    db.rename_table("jobs", "old")
    db.table("jobs")["a"] = {"state": "new", "n": 100}
    assert jobs.increment("a", "n") == 6
    assert jobs.where().update(tries=1) == 1
    claim = jobs.claim(NEW, RUNNING)
    assert claim.value == Job(State.RUNNING, 6, 1)
    assert db.table("jobs")["a"] == {"state": "new", "n": 100}


@pytest.mark.parametrize("more", [{}, {"ignore_extra": True}])
def test_a_field_that_the_class_lacks_is_refused(db: Database, more: dict[str, Any]) -> None:
    jobs = db.table("jobs", type=Job, **more)
    jobs["a"] = Job(State.NEW)
    with pytest.raises(WrongClass, match="no field 'statee'"):
        jobs.where(NEW).update(statee=5)
    with pytest.raises(WrongClass, match="no field 'statee'"):
        jobs.increment("a", "statee", default=0)
    claim = jobs.claim(NEW, RUNNING)
    with pytest.raises(WrongClass, match="no field 'statee'"):
        claim.finish(statee="done")
    claim.give_back()
    assert db.table("jobs")["a"] == {"state": "new", "n": 0, "tries": 0}


def test_a_validated_table_refuses_fields_of_the_wrong_type(db: Database) -> None:
    jobs = db.table("jobs", type=Job, validate=True)
    jobs["a"] = Job(State.NEW)
    with pytest.raises(WrongClass):
        jobs.claim(NEW, {"n": "seven"})
    with jobs.claim(NEW, {"state": State.RUNNING}) as claim:
        with pytest.raises(WrongClass):
            claim.finish(n="seven")
        claim.delete()
    assert len(jobs) == 0


def test_a_lease_of_a_row_that_makes_no_instance_runs_out(db: Database) -> None:
    jobs, rows = db.table("jobs", type=Job), db.table("jobs")
    rows["a"] = {"state": "new", "other": 1}
    with pytest.raises(WrongClass, match="has a field 'other'"):
        jobs.claim(NEW, {"state": State.RUNNING})
    rows.claim(NEW, RUNNING, lease=0.01)
    jobs["b"] = Job(State.NEW)
    time.sleep(0.2)
    assert jobs.claim(KEY == "b", {}).value == Job(State.NEW)
    assert rows["a"] == {"state": "new", "other": 1}


def test_a_claim_leaves_the_other_fields_as_they_are_and_restores_those_it_sets(db: Database) -> None:
    jobs = db.table("jobs")
    row = {
        "state": "new",
        "large": b"x" * 100_000,
        "inner": {"list": [1, {"y": 2.5}], "text": "z" * 50_000},
        "n": 2**70,
    }
    jobs["a"] = row
    fields = {"state": {"by": ["me"]}, "inner": None, "large": 5, "extra": b"y" * 40_000, "n": F.n + 1}
    with jobs.claim(NEW, fields) as claim:
        expected = {**row, **fields, "n": 2**70 + 1}
        assert claim.value == expected
        assert "_lease" not in claim.value
        assert {**jobs["a"].to_dict(), "_lease": 0} == {**expected, "_lease": 0}
    assert jobs["a"] == {**row, "n": 2**70 + 1}
    jobs.claim(NEW, fields).finish({"large": b"w" * 90_000}, more=F.extra)
    assert jobs["a"] == {**expected, "large": b"w" * 90_000, "n": 2**70 + 2, "more": fields["extra"]}
    assert db.check() == []


def test_what_cannot_be_stored_leaves_the_row_unclaimed(db: Database) -> None:
    jobs = queue(db, 1)
    jobs.create_index("one", F.only, unique=True)
    jobs["other"] = {"state": "done", "only": 1}
    before = jobs[0].to_dict()
    with pytest.raises(pellucid.UniqueError):
        jobs.claim(NEW, {**RUNNING, "only": 1})
    assert jobs[0] == before
    claim = jobs.claim(NEW, RUNNING)
    with pytest.raises(pellucid.UniqueError):
        claim.finish(only=1)
    claim.finish(only=2)
    assert jobs[0] == {**before, **RUNNING, "only": 2}
    assert db.check() == []


def test_a_claim_of_a_table_that_is_not_there_creates_none(db: Database) -> None:
    assert db.table("none").claim(NEW, RUNNING) is None
    assert db.tables() == []


def test_a_claim_shows_its_key(db: Database) -> None:
    jobs = queue(db, 1)
    claim = jobs.claim(NEW, RUNNING)
    assert repr(claim) == "<pellucid.claims.Claim of 0, for 60 s>"
    claim.finish()
    assert repr(claim) == "<pellucid.claims.Claim of 0, ended>"


def test_a_watch_reports_claims(db: Database) -> None:
    jobs = queue(db, 1)
    watch = jobs.watch(timeout=0)
    with jobs.claim(NEW, RUNNING) as claim:
        claim.finish(state="done")
    assert [change.value.state for change in watch if change.kind == "put"][-1] == "done"
