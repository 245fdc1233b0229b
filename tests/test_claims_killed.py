"""Is no job lost, and none done twice, if the processes that have claimed them are killed?"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pellucid
from pellucid import F
from processes import Child

LEASE = 0.5
JOBS = 60
NEW = F.state == "new"

# Does jobs, each with a line about its claim and one about its end, until there are none.
WORKER = """
import random, sys, time
import pellucid
from pellucid import F

db = pellucid.open(sys.argv[1])
jobs, log = db.table("jobs"), db.table("log")
while jobs.where(F.state != "done").exists():
    job = jobs.claim(F.state == "new", {"state": "running", "tries": F.tries + 1}, lease=0.5, timeout=1)
    if job is None:
        continue
    log.append({"what": "claim", "job": job.key, "at": job.until - 0.5, "until": job.until})
    # Some sleep for longer than their lease.
    time.sleep(random.choice([0, 0.001, 0.02, 0.8 if random.random() < 0.2 else 0]))
    try:
        with db.transaction():
            job.finish(state="done")
            log.append({"what": "done", "job": job.key})
    except pellucid.LeaseLost:
        log.append({"what": "late", "job": job.key})
"""


def test_the_job_of_a_killed_process_is_claimed_by_the_next(path: Path) -> None:
    with pellucid.open(path) as db:
        jobs = db.table("jobs")
        jobs.extend({"state": "new", "n": number} for number in range(2))
        with Child(path) as child:
            child("from pellucid import F")
            child("job = db.table('jobs').claim(F.state == 'new', {'state': 'running'}, lease=0.5)")
            child.kill()
        killed_at = time.time()
        assert jobs[0].state == "running"
        claim = jobs.claim(NEW & (F.n == 0), {"state": "running"}, timeout=30)
        assert claim.key == 0
        assert time.time() - killed_at > 0.1
        claim.finish(state="done")
        assert [row.state for row in jobs.values()] == ["done", "new"]
        assert db.check() == []


def test_a_forked_child_does_not_give_back_what_its_parent_has_claimed(path: Path) -> None:
    with pellucid.open(path) as db:
        jobs = db.table("jobs")
        jobs.append({"state": "new"})
        with jobs.claim(NEW, {"state": "running"}) as job:
            child = os.fork()
            if child == 0:
                # As if its work had raised.
                job.__exit__(SystemExit, SystemExit(), None)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert jobs[0].state == "running"
            job.finish(state="done")
        assert jobs[0] == {"state": "done"}


def test_each_job_is_done_once_whenever_workers_are_killed(path: Path) -> None:
    with pellucid.open(path) as db:
        jobs, log = db.table("jobs"), db.table("log")
        jobs.create_index("by_state", F.state)
        jobs.extend({"state": "new", "tries": 0} for _ in range(JOBS))
        command = [sys.executable, "-c", WORKER, str(path)]
        workers = [subprocess.Popen(command) for _ in range(4)]
        kills, stop = 0, time.monotonic() + 120
        try:
            while jobs.where(F.state != "done").exists() and time.monotonic() < stop:
                time.sleep(random.uniform(0.05, 0.4))
                place = random.randrange(len(workers))
                if kills < 20:
                    workers[place].kill()
                    kills += 1
                if workers[place].poll() is not None or kills < 20:
                    workers[place].wait()
                    workers[place] = subprocess.Popen(command)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        assert jobs.where(F.state == "done").count() == JOBS
        assert jobs.where(F["_lease"].exists()).count() == 0
        done = [row.job for row in log.values() if row.what == "done"]
        assert sorted(done) == list(range(JOBS))
        for job in range(JOBS):
            spans = sorted((row.at, row.until) for row in log.where(F.what == "claim", F.job == job))
            # A claim begins when the one before it has run out: no two hold at the same time.
            assert all(later[0] >= earlier[1] for earlier, later in itertools.pairwise(spans))
        assert db.check() == []
