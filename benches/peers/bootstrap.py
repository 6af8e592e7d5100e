"""Peers of `rederive bench bootstrap`: scipy and rliable on task differences of the same kinds.

    python3 -m venv venv && venv/bin/pip install numpy scipy rliable "pandas<3"
    rederive bench bootstrap --json >> rows.jsonl; venv/bin/python bootstrap.py >> rows.jsonl

One JSON object a line. Each (program, number of tasks, kind) runs in a process of its own, so that its peak memory is its own.
scipy works in batches of 100 resamples, without which 100,000 tasks would take 8 GB. rliable resamples rows of a column."""

import argparse
import json
import os
import resource
import subprocess
import sys
import time


def differences(tasks, values):
    import numpy as np

    random = np.random.default_rng(1)
    if values == "few":
        return (random.integers(0, 5, tasks) - random.integers(0, 5, tasks)) / 4
    return random.random(tasks) * 1.2 - 0.5


def scipy_percentile(data, resamples):
    import numpy as np
    import scipy.stats

    found = scipy.stats.bootstrap((data,), np.mean, n_resamples=resamples, method="percentile", batch=100, random_state=1)
    return found.confidence_interval.low, found.confidence_interval.high


def rliable(data, resamples):
    import numpy as np
    from rliable import library, metrics

    scores = {"change": data[:, None]}
    _, intervals = library.get_interval_estimates(scores, lambda x: np.array([metrics.aggregate_mean(x)]), reps=resamples)
    return float(intervals["change"][0, 0]), float(intervals["change"][1, 0])


def numpy_counts(data, resamples):
    """The road of counts, for few values: not a program that people use, but the floor."""
    import numpy as np

    values, counts = np.unique(data, return_counts=True)
    random = np.random.default_rng(1)
    means = random.multinomial(len(data), counts / len(data), resamples) @ values / len(data)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


PROGRAMS = {"scipy": scipy_percentile, "rliable": rliable, "numpy counts": numpy_counts}


def child(program, tasks, values, resamples, runs):
    import importlib.metadata

    data = differences(tasks, values)
    wall = []
    for _ in range(runs):
        start = time.perf_counter()
        low, high = PROGRAMS[program](data, resamples)
        wall.append(time.perf_counter() - start)
    package = program.split()[0]
    row = dict(engine=program, version=importlib.metadata.version(package), what="bootstrap", tasks=tasks, values=values,
               resamples=resamples, wall_s=wall, low=float(low), high=float(high), load_before=os.getloadavg()[0],
               peak_resident_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    print(json.dumps(row), flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tasks", type=int, nargs="+", default=[1_000, 100_000])
    options.add_argument("--resamples", type=int, default=10_000)
    options.add_argument("--runs", type=int, default=2)
    options.add_argument("--programs", nargs="+", default=list(PROGRAMS), choices=list(PROGRAMS))
    options.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.child:
        return child(given.child[0], given.tasks[0], given.child[1], given.resamples, given.runs)
    for tasks in given.tasks:
        for values in ["few", "many"]:
            for program in given.programs:
                if program == "numpy counts" and values == "many":
                    continue
                subprocess.run([sys.executable, __file__, "--tasks", str(tasks), "--resamples", str(given.resamples), "--runs",
                                str(given.runs), "--child", program, values], check=True)


main()
