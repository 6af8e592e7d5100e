"""The numbers of `rederive bench audit`, asked of DuckDB: every Nth of the queries that `rederive audit --sql` writes, one after
the other over the same Parquet files. It checks no hash and judges no printed digit. Prints one JSON row.

    rederive audit --workspace DIR --sql DIR/queries
    python benches/peers/audit.py DIR --every 100
"""

import argparse
import json
import os
import resource
import time
from pathlib import Path

import duckdb

options = argparse.ArgumentParser()
options.add_argument("workspace", type=Path)
options.add_argument("--every", type=int, default=100)
options.add_argument("--threads", type=int, default=os.cpu_count())
asked = options.parse_args()

queries = sorted((asked.workspace / "queries").glob("*.sql"))
chosen = queries[:: asked.every]
os.chdir(asked.workspace)
connection = duckdb.connect()
connection.execute(f"SET threads = {asked.threads}")
seconds = []
for path in chosen:
    text = Path("queries", path.name).read_text()
    started = time.perf_counter()
    connection.execute(text).fetchall()
    seconds.append(round(time.perf_counter() - started, 4))
print(
    json.dumps(
        {
            "engine": "duckdb",
            "version": duckdb.__version__,
            "what": "audit",
            "threads": asked.threads,
            "queries": len(queries),
            "asked": len(chosen),
            "wall_s": round(sum(seconds), 3),
            "slowest_s": max(seconds),
            "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
    )
)
