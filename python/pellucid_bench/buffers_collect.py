"""Time the ways to get a dict out of a pickle that lies in a buffer, with the standard library alone.

    python buffers_collect.py --json out.json

It runs on Python 2.7 and on 3.6 to 3.15, on CPython and on PyPy. `buffers.py` imports it, and adds what needs
more than the standard library. A run writes one JSON file: the machine, the interpreter, and each sample.

The buffer is a `memoryview`, as psycopg2 returns it for `bytea`. Each way gets its dict in another manner:
the unpickler in C or the one in Python, over the buffer, over a copy of it, or over a stream that wraps it.
Each interpreter reads pickles that it wrote itself.
"""

from __future__ import division, print_function

import argparse
import gc
import io
import json
import os
import pickle
import platform
import sys
import time
import timeit

PYTHON_2 = sys.version_info[0] == 2
ENTRIES = (1, 10, 100, 1000, 10000, 100000)
# A sample repeats its work until it has used a processor for so long, or until so much time has passed. The
# clock of Python 2.7 counts microseconds.
SAMPLE = {"used_min": 0.005, "seconds_max": 0.2}


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


def pickle_ways():
    """Return the ways to unpickle, by name, each with its unpickler: "C" or "Python"."""
    if PYTHON_2:
        import cPickle

        return {
            "loads, a copy": ("C", lambda buffer: cPickle.loads(buffer.tobytes())),
            "load, BytesIO": ("C", lambda buffer: cPickle.load(io.BytesIO(buffer))),
            "load, stream of bytes": ("C", lambda buffer: cPickle.load(StreamOfBytes(buffer))),
            "Python loads, a copy": ("Python", lambda buffer: pickle.loads(buffer.tobytes())),
            "Python load, stream of bytes": ("Python", lambda buffer: pickle.load(StreamOfBytes(buffer))),
        }
    over_buffer = unpickler_over_a_buffer()
    ways = {
        "Python loads, the buffer": ("Python", pickle._loads),
        "Python loads, a copy": ("Python", lambda buffer: pickle._loads(buffer.tobytes())),
        "Python load, stream of bytes": ("Python", lambda buffer: pickle._load(StreamOfBytes(buffer))),
        "Python, slices of the buffer": ("Python", lambda buffer: over_buffer(buffer).load()),
    }
    if pickle.Unpickler is not pickle._Unpickler:  # PyPy has no other one
        ways.update(
            {
                "loads, the buffer": ("C", pickle.loads),
                "loads, a copy": ("C", lambda buffer: pickle.loads(buffer.tobytes())),
                "load, BytesIO": ("C", lambda buffer: pickle.load(io.BytesIO(buffer))),
                "load, stream of bytes": ("C", lambda buffer: pickle.load(StreamOfBytes(buffer))),
                "load, stream of views": ("C", lambda buffer: pickle.load(StreamOfViews(buffer))),
                "load, stream with peek": ("C", lambda buffer: pickle.load(StreamWithPeek(buffer))),
            }
        )
    return ways


def json_ways():
    """Return the ways to read JSON text that lies in a buffer."""
    return {"json.loads, decoded": ("C", lambda buffer: json.loads(buffer.tobytes().decode("utf-8")))}


# By the clock, and what this process has used of a processor, which other work on the machine changes little.
# Python 2.7 has the latter under another name.
CLOCKS = {"seconds": timeit.default_timer, "processor": getattr(time, "process_time", None) or time.clock}


def looped(function, argument, loops, clocks):
    """Return the seconds of one call, from that many, by each clock."""
    # The collector stays on, as in a program; what earlier samples left is not this sample's.
    gc.collect()
    starts = [(name, clock, clock()) for name, clock in clocks.items()]
    for _ in range(loops):
        function(argument)
    return {name: (clock() - start) / loops for name, clock, start in starts}


def loops_for(function, argument, clocks):
    """Return how many calls a sample needs; they also warm up caches and compilers."""
    loops = 1
    while SAMPLE["used_min"]:
        spent = looped(function, argument, loops, clocks)
        seconds = spent.pop("seconds") * loops
        used = sum(spent.values()) * loops
        if used >= SAMPLE["used_min"] or seconds >= SAMPLE["seconds_max"]:
            return loops
        wanted = int(loops * SAMPLE["used_min"] / max(used, 1e-6)) + 1
        loops = max(loops * 2, min(wanted, loops * 100))
    return loops


def in_turn(work, rounds, clocks=CLOCKS):
    """Time each (function, argument) once in each round; each round begins with another one."""
    loops = [loops_for(function, argument, clocks) for function, argument in work]
    samples = [[] for _ in work]
    for turn in range(rounds):
        for step in range(len(work)):
            index = (turn + step) % len(work)
            function, argument = work[index]
            samples[index].append(looped(function, argument, loops[index], clocks))
    results = []
    for count, taken in zip(loops, samples):
        results.append({name: [sample[name] for sample in taken] for name in clocks})
        results[-1]["loops"] = count
    return results


def measured(value, entries, protocol, ways, data, rounds):
    """Return the results of some ways to read these bytes, after a check of what each gives."""
    buffer = memoryview(data)
    for name, (_, function) in sorted(ways.items()):
        if function(buffer) != value:
            raise SystemExit("%s of protocol %s gives another dict" % (name, protocol))
    names = sorted(ways)
    results = in_turn([(ways[name][1], buffer) for name in names], rounds)
    for name, result in zip(names, results):
        result.update(way=name, unpickler=ways[name][0], protocol=protocol, entries=entries, size=len(data))
    return results


def collect(sizes, rounds, tell=None):
    """Return the results of all ways, protocols and sizes."""
    results = []
    for entries in sizes:
        value = population(entries)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            data = pickle.dumps(value, protocol)
            results += measured(value, entries, protocol, pickle_ways(), data, rounds)
        data = json.dumps(value).encode("utf-8")
        results += measured(value, entries, None, json_ways(), data, rounds)
        if tell:
            tell("pickles, %d entries: done" % entries)
    return results


def processor():
    """Return the model of the processor."""
    try:
        with open("/proc/cpuinfo") as file:
            models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except IOError:
        models = []
    return models[0] if models else platform.machine()


def machine():
    """Return what the figures depend on; the names of the host and of the user are left out."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "kernel": "%s %s" % (platform.system(), platform.release()),
        "load": [round(load, 1) for load in os.getloadavg()],
    }


def python():
    """Return the interpreter."""
    return {
        "implementation": platform.python_implementation(),
        "version": platform.python_version(),
        "compiler": platform.python_compiler(),
        "pypy": ".".join(map(str, sys.pypy_version_info[:3])) if hasattr(sys, "pypy_version_info") else None,
    }


def dataset(results, rounds, **more):
    """Return what a run writes."""
    whole = {
        "experiment": "buffers",
        "format": 1,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
        "python": python(),
        "rounds": rounds,
        "unit": "seconds of one read; 'processor' is the client's, 'backend' the server's",
        "results": results,
    }
    whole.update(more)
    return whole


def write(path, data):
    """Write a dataset."""
    with open(path, "w") as file:  # JSON is ASCII, in either Python
        file.write(json.dumps(data, indent=1, sort_keys=True) + "\n")


def median(numbers):
    """Return the median."""
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def arguments():
    """Return the options of both programs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="PATH", help="where to write the dataset")
    parser.add_argument("--rounds", type=int, default=5, help="samples of each way")
    parser.add_argument("--entries", type=int, nargs="+", default=ENTRIES, help="sizes of the dict")
    parser.add_argument("--quick", action="store_true", help="one read for a sample; figures mean nothing")
    return parser


def options_of(parser):
    """Return the options that were given."""
    options = parser.parse_args()
    if options.quick:
        SAMPLE["used_min"] = 0
    return options


def main():
    """Run, write the dataset, and print the medians of the processor's time."""
    options = options_of(arguments())
    results = collect(options.entries, options.rounds, tell=lambda line: print(line, file=sys.stderr))
    if options.json:
        write(options.json, dataset(results, options.rounds))
    for result in results:
        kind = "JSON" if result["protocol"] is None else "protocol %d" % result["protocol"]
        microseconds = median(result["processor"]) * 1e6
        print("%7d  %-10s  %-30s %12.1f us" % (result["entries"], kind, result["way"], microseconds))


if __name__ == "__main__":
    main()
