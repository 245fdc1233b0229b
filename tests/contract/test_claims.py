"""Is each row claimed once, in order, and claimed anew when its lease has run out?"""

from __future__ import annotations

import threading
import time
from typing import Any

import pellucid
import pytest
from pellucid import KEY, F
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
        with pytest.raises(pellucid.LeaseLost):
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


def test_claims_say_what_is_wrong_with_their_arguments(db: Database) -> None:
    jobs = queue(db, 1)
    for lease in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="lease="):
            jobs.claim(NEW, RUNNING, lease=lease)
    with pytest.raises(ValueError, match="timeout="):
        jobs.claim(NEW, RUNNING, timeout=-1)
    for name in ("a.b", 3, "_lease"):
        with pytest.raises(ValueError, match="name of a field"):
            jobs.claim(NEW, {name: 1})
    with pytest.raises(TypeError, match="dict"):
        jobs.claim(NEW, "running")
    with pytest.raises(TypeError):
        jobs.claim("new", RUNNING)
    with pytest.raises(pellucid.UnsupportedValue):
        jobs.claim(NEW, {"state": object()})
    claim = jobs.claim(NEW, RUNNING)
    with pytest.raises(ValueError, match="name of a field"):
        claim.finish({"a.b": 1})
    with pytest.raises(ValueError, match="lease="):
        claim.renew(0)
    claim.finish()
    jobs["number"] = 5
    with pytest.raises(TypeError, match="records"):
        jobs.claim(KEY == "number", {})


def test_a_table_with_a_class_says_how_its_rows_are_claimed(db: Database) -> None:
    import dataclasses

    @dataclasses.dataclass
    class Job:
        state: str
        n: int = 0

    jobs = db.table("jobs", type=Job)
    jobs["a"] = Job("new")
    with pytest.raises(TypeError, match=r"without type=, db.table\('jobs'\)"):
        jobs.claim(NEW, RUNNING)
    with db.table("jobs").claim(NEW, RUNNING) as claim:
        claim.finish(state="done")
    assert jobs["a"] == Job("done")


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
