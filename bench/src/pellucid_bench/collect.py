"""Time how the standard library turns values into bytes and back: one file, which needs no other.

    python collect.py pickle --json out.json     # protocols, `fast`, marshal and json: dump, load, size
    python collect.py buffers --json out.json    # unpicklers over the buffer of a database driver
    python collect.py pickle --quick             # a few seconds; its figures mean nothing

It runs on Python 2.7 and on 3.6 to 3.15, on CPython and on PyPy. Copy it to another machine to run it there.
It writes the dataset of `pellucid bench`, which imports it and adds the libraries that have to be installed.

A figure is processor time of this process: other work on the machine changes it little. The contenders of a
measure take turns, and each gives one sample in a round. Before, each must give back the value it was given.
"""

from __future__ import division, print_function

import argparse
import functools
import gc
import hashlib
import io
import itertools
import json
import marshal
import math
import os
import pickle
import platform
import sys
import sysconfig
import time

PYTHON_2 = sys.version_info[0] == 2
CPYTHON = platform.python_implementation() == "CPython"
SCHEMA = "pellucid-bench/1"
# What this process has used of a processor. Python 2.7 has it under another name.
PROCESSOR_TIME = time.clock if PYTHON_2 else time.process_time
TAIL = 0.025
SIZE_UNITS = {"pickle": "dicts in the list", "buffers": "entries of the dict"}
# From that width of its interval on, as a share of its median, a result is called unstable.
UNSTABLE_WIDTH = 0.25


# Timing


class Pace(object):
    """How long a run may take."""

    def __init__(self, rounds=7, sample_seconds=0.02, quick=False):
        self.rounds = rounds
        # The least length of a sample. It also spans a hundred steps of the clock.
        self.sample_seconds = 0 if quick else max(sample_seconds, 100 * clock_step(PROCESSOR_TIME))
        # A sample ends after this time by the wall clock, where the processor is busy elsewhere.
        self.wall_seconds_max = 10 * self.sample_seconds
        # One call that takes longer is sampled in the first rounds only.
        self.slow_seconds = 1.0
        self.slow_rounds = min(rounds, 3)


def clock_step(clock):
    """Return the smallest step that a clock was seen to make, in seconds."""
    steps = []
    for _ in range(5):
        start = now = clock()
        while now == start:
            now = clock()
        steps.append(now - start)
    return min(steps)


class Contender(object):
    """One way to do the work of a measure."""

    def __init__(self, name, library, work, facts=None):
        self.name = name
        self.library = library
        self.work = work
        self.facts = dict(facts or {})
        self.error = None  # why there are no samples, or no more of them
        self.samples = []
        # What the width of the interval is compared with, if the median is less: a share can be around zero.
        self.scale_min = 0.0

    def fails(self, error):
        """Keep the reason for which this contender has no figures."""
        text = " ".join(("%s: %s" % (type(error).__name__, error)).split())
        self.error = text if len(text) <= 200 else text[:197] + "..."

    def result(self):
        """Return what a dataset has of this contender."""
        middle = median(self.samples) if self.samples else None
        bounds = interval(self.samples)
        return {
            "contender": self.name,
            "library": self.library,
            "ours": False,
            "reference": False,
            "samples": self.samples,
            "median": middle,
            "interval": bounds,
            "unstable": bool(bounds) and bounds[1] - bounds[0] > UNSTABLE_WIDTH * max(middle, self.scale_min),
            "error": self.error,
            "like": None,
            "note": "",
            "facts": self.facts,
        }


class Measure(object):
    """Contenders that do the same work, and how to name it."""

    def __init__(self, group, size, title, unit="seconds", better="lower", notes=()):
        self.group = group
        self.size = size
        self.title = title
        self.unit = unit
        self.better = better
        self.notes = list(notes)
        self.contenders = []

    def as_dict(self, experiment):
        """Return what a dataset has of this measure."""
        return {
            "id": "%s/%s/%d" % (experiment, self.group, self.size),
            "title": self.title,
            "group": self.group,
            "size": self.size,
            "size_unit": SIZE_UNITS[experiment],
            "unit": self.unit,
            "better": self.better,
            "labels": [],
            "notes": self.notes,
            "results": [one.result() for one in self.contenders if one.samples or one.error],
            "targets": [],
        }


def sample(work, loops, clock):
    """Return the seconds of one call, from that many."""
    # The garbage collector stays on, as in a program; what earlier samples left is not this sample's.
    gc.collect()
    start = clock()
    for _ in itertools.repeat(None, loops):
        work()
    return (clock() - start) / loops


def calibrated(work, pace, clock):
    """Return how many calls a sample needs, and the seconds of one. It warms up caches and compilers."""
    loops = 1
    while True:
        wall_start = time.time()
        seconds = sample(work, loops, clock)
        if seconds * loops >= pace.sample_seconds or time.time() - wall_start > pace.wall_seconds_max:
            return loops, seconds
        wanted = int(pace.sample_seconds / max(seconds, 1e-9)) + 1
        loops = max(loops * 2, min(wanted, loops * 100))


def take_samples(contenders, pace, clock=PROCESSOR_TIME):
    """Time each contender once in each round; each round begins with the next one."""
    ready = []
    for one in contenders:
        try:
            loops, seconds = calibrated(one.work, pace, clock)
        except Exception as error:
            one.fails(error)
        else:
            one.facts["calls in a sample"] = str(loops)
            ready.append((one, loops, pace.slow_rounds if seconds > pace.slow_seconds else pace.rounds))
    for turn in range(pace.rounds):
        for step in range(len(ready)):
            one, loops, rounds = ready[(turn + step) % len(ready)]
            if one.error is None and turn < rounds:
                try:
                    one.samples.append(sample(one.work, loops, clock))
                except Exception as error:
                    one.fails(error)


def median(numbers):
    """Return the median."""
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def interval(samples):
    """Return the bounds in which the median lies with 95 %, or None if there are too few samples.

    A bootstrap draws samples with replacement and looks at their median, which is at most the k-th sample if
    at least half of the draw is. So the probabilities are known without drawing.
    """
    count, ordered = len(samples), sorted(samples)
    if count < 3:
        return None

    def at_least(wanted, chance):
        ways = [combinations(count, hits) for hits in range(count + 1)]
        return sum(ways[n] * chance**n * (1 - chance) ** (count - n) for n in range(wanted, count + 1))

    places = range(1, count + 1)
    low = next(k for k in places if at_least((count + 1) // 2, k / count) > TAIL)
    high = next(k for k in places if at_least(count // 2 + 1, k / count) >= 1 - TAIL)
    return [ordered[low - 1], ordered[high - 1]]


def combinations(count, taken):
    """Return in how many ways some of them can be taken."""
    return math.factorial(count) // math.factorial(taken) // math.factorial(count - taken)


# The experiment `pickle`


def row(number):
    """Return a dict of six fields, of which one is a list of strings and one a dict."""
    return {
        "name": "user %06d" % number,
        "age": number % 90,
        "amount": number * 0.25,
        "active": number % 2 == 0,
        "tags": ["tag %d" % (number % 11), "group %d" % (number % 7), "all"],
        "address": {"street": "%d High Street" % number, "city": "Bath", "zip": "%05d" % (number % 99991)},
    }


def value_of(size):
    """Return one dict, or a list of that many."""
    return row(0) if size == 1 else [row(number) for number in range(size)]


class Codec(object):
    """How a library makes bytes of a value, and the value of the bytes."""

    def __init__(self, name, library, dumps, loads, facts=None):
        self.name = name
        self.library = library
        self.dumps = dumps
        self.loads = loads
        self.facts = facts or {}

    def contender(self, work=None):
        """Return a contender with the name of this codec."""
        return Contender(self.name, self.library, work, self.facts)


def picklers():
    """Return each kind of pickler: its name, its class, a class of files for it, and its `loads`."""
    if PYTHON_2:
        kinds = [("Python", pickle.Pickler, io.BytesIO, pickle.loads)]
        if CPYTHON:
            import cPickle
            import cStringIO

            kinds.insert(0, ("C", cPickle.Pickler, cStringIO.StringIO, cPickle.loads))
        return kinds
    kinds = [("Python", pickle._Pickler, io.BytesIO, pickle._loads)]
    if pickle.Pickler is not pickle._Pickler:  # PyPy has no other one
        kinds.insert(0, ("C", pickle.Pickler, io.BytesIO, pickle.loads))
    return kinds


def pickle_codec(kind, pickler, new_file, loads, protocol, fast):
    """Return the codec of one kind of pickler and one protocol, with the memo or without."""

    def dumps(value):
        file = new_file()
        writer = pickler(file, protocol)
        writer.fast = fast
        writer.dump(value)
        return file.getvalue()

    name = "pickle %s, protocol %d%s" % (kind, protocol, ", fast" if fast else "")
    facts = {"pickler": kind, "protocol": str(protocol), "memo": "no" if fast else "yes"}
    return Codec(name, "pickle", dumps, loads, facts=facts)


def standard_codecs():
    """Return the codecs of the standard library."""
    codecs = [
        pickle_codec(kind, pickler, new_file, loads, protocol, fast)
        for kind, pickler, new_file, loads in picklers()
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
        for fast in (False, True)
    ]
    codecs.append(Codec("marshal", "marshal", marshal.dumps, marshal.loads))
    if marshal.version > 2:  # from version 3 on, it writes a reference for an object that it has written

        def without_references(value):
            return marshal.dumps(value, 2)

        codecs.append(Codec("marshal, no references", "marshal", without_references, marshal.loads))
    codecs.append(Codec("json", "json", lambda value: json.dumps(value).encode("ascii"), json.loads))
    return codecs


def bytes_of(codecs, value):
    """Return the bytes that each codec makes, or the exception that says why it has none."""
    found, same = [], {}
    for codec in codecs:
        try:
            data = codec.dumps(value)
            if codec.loads(data) != value:
                raise ValueError("it gives back another value than it was given")
            found.append(same.setdefault(data, data))  # many codecs make the same bytes: keep them once
        except Exception as error:
            found.append(error)
    return found


def of_value(size):
    """Return the words for a value of that size."""
    return "one dict" if size == 1 else "a list of {:,} dicts".format(size)


MEMO = "(time with the memo - time with `fast`) / time with the memo, of the same round"


def run_pickle(run, sizes, codecs):
    """Measure dump, load and size of each codec, and what the memo of pickle costs."""
    for size in sizes:
        measure_codecs(run, size, codecs)


def measure_codecs(run, size, codecs):
    """Measure all codecs with one value."""
    about, value = of_value(size), value_of(size)
    made = [(codec, data) for codec, data in zip(codecs, bytes_of(codecs, value))]
    failed = [(codec, data) for codec, data in made if isinstance(data, Exception)]
    made = [(codec, data) for codec, data in made if not isinstance(data, Exception)]
    dump, load = Measure("dump", size, "dump " + about), Measure("load", size, "load " + about)
    dumps = [codec.contender(functools.partial(codec.dumps, value)) for codec, _ in made]
    run.measure(dump, dumps, failed)
    del value  # the garbage collector would walk through it while others are loaded
    loads = [codec.contender(functools.partial(codec.loads, data)) for codec, data in made]
    run.measure(load, loads, failed)
    sizes = [codec.contender() for codec, _ in made]
    for contender, (_, data) in zip(sizes, made):
        contender.samples.append(len(data))
    run.measure(Measure("size", size, "bytes of " + about, unit="bytes"), sizes, failed)
    title = "share of the memo in the time to dump " + about
    run.measure(Measure("memo", size, title, unit="share", notes=[MEMO]), memo_shares(dumps))


def memo_shares(contenders):
    """Return how much of the time of each pickler the memo takes, in each round."""
    by_name = {one.name: one for one in contenders}
    shares = []
    for one in contenders:
        fast = by_name.get(one.name + ", fast")
        if fast is not None and one.error is None and fast.error is None:
            kept = {name: one.facts[name] for name in ("pickler", "protocol")}
            share = Contender(one.name, one.library, None, facts=kept)
            share.scale_min = 1.0
            share.samples = [(long - short) / long for long, short in zip(one.samples, fast.samples) if long]
            shares.append(share)
    return shares


# The experiment `buffers`. The buffer is a `memoryview`, as psycopg2 returns it for `bytea`.


def population(entries):
    """Return a dict of that many dicts, which JSON and msgpack can hold too."""
    return {
        "entry %06d" % n: {
            "name": "user %d" % n,
            "age": n % 90,
            "amount": n * 0.25,
            "active": n % 2 == 0,
            "tags": ["a", "b%d" % (n % 7)],
        }
        for n in range(entries)
    }


class StreamOfBytes(object):
    """A file over a buffer: each read copies its bytes, as the reads of files do."""

    def __init__(self, buffer):
        self.buffer = buffer
        self.position = 0

    def read(self, count=-1):
        """Return the next bytes."""
        return self.view(count).tobytes()

    def view(self, count):
        """Return the next part of the buffer, and step over it."""
        start = self.position
        self.position = len(self.buffer) if count < 0 else start + count
        return self.buffer[start : self.position]

    def readline(self):
        """Return the bytes to the end of the line: protocol 0 has lines."""
        start, size = self.position, 64
        while True:
            part = self.buffer[start : start + size].tobytes()
            end = part.find(b"\n") + 1
            if end or start + size >= len(self.buffer):
                self.position = start + (end or len(part))
                return part[:end] if end else part
            size *= 2


class StreamOfViews(StreamOfBytes):
    """The same without a copy: each read returns a part of the buffer."""

    def read(self, count=-1):
        """Return the next part of the buffer."""
        return self.view(count)


class StreamWithPeek(StreamOfViews):
    """The same, for the C unpickler of Python 3: it looks ahead where it can, and so reads less often."""

    def peek(self, count):
        """Return the next part of the buffer, and stay before it."""
        return self.buffer[self.position : self.position + count]


def unpickler_over_a_buffer():
    """Return a class: Python's unpickler without its file, which slices the buffer itself."""

    class OverBuffer(pickle._Unpickler):
        def __init__(self, buffer):
            pickle._Unpickler.__init__(self, StreamOfBytes(buffer))
            self.data = buffer

        def load(self):
            data, position, end_of_line = self.data, [0], b"\n"[0]

            def read(count):
                start = position[0]
                position[0] = stop = start + count
                return data[start:stop].tobytes()

            def readinto(target):
                start = position[0]
                position[0] = stop = start + len(target)
                target[:] = data[start:stop]
                return len(target)

            def readline():
                start = stop = position[0]
                while data[stop] != end_of_line:
                    stop += 1
                position[0] = stop + 1
                return data[start : stop + 1].tobytes()

            self.read, self.readinto, self.readline = read, readinto, readline
            self.metastack, self.stack = [], []
            self.append, self.proto = self.stack.append, 0
            dispatch = self.dispatch
            try:
                while True:
                    place = position[0]
                    position[0] = place + 1
                    dispatch[data[place]](self)
            except pickle._Stop as stop:
                return stop.value

        def load_frame(self):
            self.read(8)  # a frame's size says how much to read ahead, and all is here

    OverBuffer.dispatch = dict(pickle._Unpickler.dispatch)
    OverBuffer.dispatch[pickle.FRAME[0]] = OverBuffer.load_frame
    return OverBuffer


def ways_of(kind, load, loads):
    """Return the ways that every unpickler has, by name."""
    return {
        kind + " loads, a copy": lambda buffer: loads(buffer.tobytes()),
        kind + " load, BytesIO": lambda buffer: load(io.BytesIO(buffer)),
        kind + " load, stream of bytes": lambda buffer: load(StreamOfBytes(buffer)),
    }


def unpicklers():
    """Return the ways to unpickle a buffer, by name. A name begins with that of the unpickler."""
    if PYTHON_2:
        ways = ways_of("Python", pickle.load, pickle.loads)
        if CPYTHON:
            import cPickle

            ways.update(ways_of("C", cPickle.load, cPickle.loads))
        return ways
    over_buffer = unpickler_over_a_buffer()
    ways = ways_of("Python", pickle._load, pickle._loads)
    ways["Python loads, the buffer"] = pickle._loads
    ways["Python, slices of the buffer"] = lambda buffer: over_buffer(buffer).load()
    if pickle.Unpickler is not pickle._Unpickler:  # PyPy has no other one
        ways.update(ways_of("C", pickle.load, pickle.loads))
        ways["C loads, the buffer"] = pickle.loads
        ways["C load, stream of views"] = lambda buffer: pickle.load(StreamOfViews(buffer))
        ways["C load, stream with peek"] = lambda buffer: pickle.load(StreamWithPeek(buffer))
    return ways


def reader(name, library, read, data, value):
    """Return a contender that reads bytes from a buffer, after a check of what it reads."""
    buffer = memoryview(data)
    one = Contender(name, library, lambda: read(buffer), facts={"bytes": str(len(data))})
    try:
        if read(buffer) != value:
            raise ValueError("it gives another dict than was pickled")
    except Exception as error:
        one.fails(error)
    return one


def run_buffers(run, sizes):
    """Measure each way to get a dict out of a buffer, for each size of the dict and each protocol."""
    ways = sorted(unpicklers().items())
    for size in sizes:
        value = population(size)
        text = json.dumps(value).encode("ascii")
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            data = pickle.dumps(value, protocol)
            readers = [reader(name, "pickle", read, data, value) for name, read in ways]
            readers.append(reader("json.loads, decoded", "json", of_json, text, value))
            title = "read a dict of {:,} dicts from a buffer, protocol {}".format(size, protocol)
            run.measure(Measure("protocol-%d" % protocol, size, title), readers)


def of_json(buffer):
    """Return the value of JSON text in a buffer."""
    return json.loads(buffer.tobytes().decode("utf-8"))


# What a dataset says about where it was made


def machine(directory):
    """Return what the figures depend on; the names of the host and of the user are left out."""
    found = {
        "processor": processor(),
        "cores": cores(),
        "memory_bytes": memory_bytes(),
        "system": platform.system(),
        "kernel": platform.release(),
        "file_system": file_system(directory),
    }
    # Runs on machines that are alike have the same id, and no name can be read from it.
    found["id"] = hashlib.sha256(json.dumps(found, sort_keys=True).encode("utf-8")).hexdigest()[:12]
    found["load"] = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    return found


def processor():
    """Return the model of the processor."""
    try:
        with io.open("/proc/cpuinfo", encoding="utf-8") as file:
            models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except (IOError, OSError):
        models = []
    return models[0] if models else platform.processor() or platform.machine()


def cores():
    """Return the number of processors of this process; a container may have fewer than the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    import multiprocessing  # Python 2.7 has the count nowhere else

    return multiprocessing.cpu_count()


def memory_bytes():
    """Return the size of the memory, if the system tells it."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", ()):
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def file_system(directory):
    """Return the type of the file system of a folder, or "?" if the system hides it."""
    wanted, found, kind = os.path.realpath(directory), "", "?"
    try:
        with io.open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
            mounts = [line.split()[1:3] for line in file]
    except (IOError, OSError):
        return kind
    for point, mounted_kind in mounts:
        point = point.replace("\\040", " ")
        if len(point) >= len(found) and (wanted + "/").startswith(point.rstrip("/") + "/"):
            found, kind = point, mounted_kind
    return str(kind)


def interpreter():
    """Return the Python that runs this, and how it was built, on which figures depend as much."""
    build = [platform.python_compiler() or "unknown compiler"]
    given = sysconfig.get_config_var("CONFIG_ARGS") or ""
    options = (("--enable-optimizations", "PGO"), ("--with-lto", "LTO"), ("--disable-gil", "free-threaded"))
    build += [name for option, name in options if option in given]
    if hasattr(sys, "pypy_version_info"):
        build.append("PyPy " + ".".join(str(part) for part in sys.pypy_version_info[:3]))
    return {
        "implementation": platform.python_implementation(),
        "version": platform.python_version(),
        "build": ", ".join(build),
    }


# A run, its output and its command line


class Run(object):
    """The settings of one run, and what it has measured so far."""

    def __init__(self, experiment, pace, quick=False, tell=None, directory="."):
        self.experiment = experiment
        self.pace = pace
        self.quick = quick
        self.tell = tell
        self.created = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
        self.machine = machine(directory)
        self.measures = []
        self.settings = {"rounds": pace.rounds}
        self.notes = ["seconds are processor time of the process that measured"]
        step = clock_step(PROCESSOR_TIME)
        if step > 0.001:
            self.notes.append("the clock makes steps of %.0f ms, so samples are long" % (step * 1e3))

    def measure(self, measure, contenders, failed=()):
        """Keep a measure, and time its contenders that have work; `failed` has codecs and their errors."""
        if self.tell:
            self.tell(measure.title)
        measure.contenders = list(contenders)
        for codec, error in failed:
            measure.contenders.append(codec.contender())
            measure.contenders[-1].fails(error)
        self.measures.append(measure)  # before the samples, so that Ctrl-C keeps those that are taken
        timed = [one for one in measure.contenders if one.work is not None and one.error is None]
        take_samples(timed, self.pace)
        for one in timed:
            one.work = None

    def dataset(self, command, complete=True):
        """Return the dataset of this run."""
        measures = [measure.as_dict(self.experiment) for measure in self.measures]
        measures = [measure for measure in measures if measure["results"]]
        libraries = {result["library"] for measure in measures for result in measure["results"]}
        return {
            "schema": SCHEMA,
            "created": self.created,
            "command": command,
            "experiment": self.experiment,
            "quick": self.quick,
            "complete": complete,
            "machine": self.machine,
            "python": interpreter(),
            "settings": self.settings,
            "versions": dict.fromkeys(sorted(libraries), "standard library"),
            "missing": not_here(),
            "notes": self.notes,
            "measures": measures,
        }


# The sizes of each experiment, in a quick run and in others.
QUICK_SIZES = {"pickle": (1, 100, 500), "buffers": (1, 10, 100)}
SIZES = {"pickle": (1, 100, 100000), "buffers": (1, 10, 100, 1000, 10000, 100000)}


class Output(object):
    """The file of a dataset. It is replaced whole, and only when there is something to write."""

    def __init__(self, path):
        self.path = path
        self.part = path + ".part"
        if os.path.isdir(path):
            raise IOError(21, "it is a folder")
        with open(self.part, "w"):  # what cannot be written is said before the measures, not after
            pass

    def write(self, data):
        """Write a dataset."""
        with open(self.part, "w") as file:  # JSON is ASCII, in either Python
            file.write(json.dumps(data, indent=1, sort_keys=True) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if os.name == "nt" and os.path.exists(self.path):
            os.remove(self.path)  # Python 2.7 replaces no file there
        os.rename(self.part, self.path)

    def discard(self):
        """Remove what was not finished."""
        if os.path.exists(self.part):
            os.remove(self.part)


def show(data, file):
    """Print the medians of a dataset. The figure comes first, so that a narrow terminal wraps names only."""
    for measure in data["measures"]:
        file.write("\n%s\n" % measure["title"])
        rows = [one for one in measure["results"] if one["samples"]]
        for one in sorted(rows, key=lambda one: one["median"]):
            mark = " (unstable)" if one["unstable"] else ""
            file.write("%12s  %s%s\n" % (shown(one["median"], measure["unit"]), one["contender"], mark))
        for one in [one for one in measure["results"] if one["error"]]:
            file.write("%12s  %s: %s\n" % ("-", one["contender"], one["error"]))


def shown(figure, unit):
    """Return a figure for people."""
    if unit == "seconds":
        return "{:,.1f} us".format(figure * 1e6)
    return "{:,.0f} B".format(figure) if unit == "bytes" else "{:.0f} %".format(100 * figure)


def positive(text):
    """Return a whole number above zero."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError("%r is no whole number above 0" % text)
    return int(text)


def parser_of():
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment", choices=sorted(SIZES), help="what to measure")
    parser.add_argument("--json", metavar="FILE", help="write the dataset to this file")
    parser.add_argument("--quick", action="store_true", help="the shortest run; its figures mean nothing")
    parser.add_argument("--rounds", type=positive, metavar="N", help="samples of each contender (7)")
    parser.add_argument("--sizes", type=positive, nargs="+", metavar="N", help="sizes of the list or dict")
    return parser


def command_of(options):
    """Return the command that measures this again, without paths, which can have the name of a user."""
    words = ["collect.py", options.experiment] + (["--quick"] if options.quick else [])
    words += ["--rounds", str(options.rounds)] if options.rounds else []
    return " ".join(words + (["--sizes"] + [str(size) for size in options.sizes] if options.sizes else []))


def main(arguments=None):
    """Measure, write the dataset, print the medians, and return the exit code."""
    if sys.version_info < (2, 7) or (3,) <= sys.version_info < (3, 6):
        sys.stderr.write("this needs Python 2.7, or 3.6 and later; this is %s\n" % platform.python_version())
        return 2
    parser = parser_of()
    options = parser.parse_args(arguments)
    output = None
    if options.json:
        try:
            output = Output(options.json)
        except (IOError, OSError) as error:
            parser.error("cannot write %s: %s" % (options.json, error.strerror))
    sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)[options.experiment]
    pace = Pace(options.rounds or (2 if options.quick else 7), quick=options.quick)
    directory = os.path.dirname(os.path.abspath(options.json or "x"))
    run = Run(options.experiment, pace, options.quick, lambda line: sys.stderr.write(line + "\n"), directory)
    run.settings["sizes"] = list(sizes)
    complete = True
    try:
        if options.experiment == "pickle":
            run_pickle(run, sizes, standard_codecs())
        else:
            run_buffers(run, sizes)
    except KeyboardInterrupt:
        complete = False
    return finish(run.dataset(command_of(options), complete), output)


def not_here():
    """Return what other interpreters have and this one has not, with the reason."""
    reason = "%s has only the pickler in Python" % platform.python_implementation()
    return {} if len(picklers()) > 1 else {"pickle C": reason}


def finish(data, output):
    """Print and write what was measured, also after Ctrl-C, and return the exit code."""
    show(data, sys.stdout)
    sys.stdout.flush()
    code = 0 if data["complete"] else 130
    if not data["complete"]:
        sys.stderr.write("stopped: what was measured until then is kept\n")
    if output is None:
        return code
    if not data["measures"]:
        output.discard()
        sys.stderr.write("nothing was measured, so %s was not written\n" % output.path)
        return code
    try:
        output.write(data)
    except (IOError, OSError) as error:
        output.discard()
        message = "cannot write %s: %s; make room there, or name another file\n"
        sys.stderr.write(message % (output.path, error.strerror))
        return 1
    sys.stderr.write("wrote %s\n" % output.path)
    return code


if __name__ == "__main__":
    sys.exit(main())
