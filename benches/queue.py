#!/usr/bin/env python3
"""queue.py [RGPU]: the time of `rgpu queue` itself: adding an entry, listing ten thousand, and what the runner takes
for each entry beyond its command. Each is compared in the same run with a bare sqlite3 or sh that does the same, and
held to its limit as a whole process.

Needs sqlite3 and sh. RGPU is a release binary (default: target/release/rgpu). ENTRIES=N changes the length of the
list. Status 1 if a limit is missed.
"""

import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
from loopback import medians, seconds, tool

ROOT = Path(__file__).resolve().parent.parent
TIMES = int(os.environ.get("TIMES", "15"))
ENTRIES = int(os.environ.get("ENTRIES", "10000"))
COMMANDS = 50


class Project:
    """An empty project with a home of its own."""

    def __init__(self, rgpu, folder):
        self.rgpu, self.folder = rgpu, folder
        (folder / "home").mkdir()
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "LANG": "C.UTF-8"}

    def run(self, *argv):
        return subprocess.run([str(word) for word in argv], cwd=self.folder, env=self.env, check=True,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout

    def queue(self, *args):
        return self.run(self.rgpu, "queue", *args)

    @property
    def database(self):
        return self.folder / ".rgpu/state.db"

    def fill(self, count):
        """Copies the newest entry until there are `count`: thousands of processes would take minutes."""
        with sqlite3.connect(self.database) as database:
            [entry] = database.execute("SELECT max(id) FROM queue_entry").fetchone()
            columns = [name for _, name, *_ in database.execute("PRAGMA table_info(queue_entry)") if name != "id"]
            events = [name for _, name, *_ in database.execute("PRAGMA table_info(event)") if name not in ("id", "subject")]
            [there] = database.execute("SELECT count(*) FROM queue_entry").fetchone()
            for _ in range(count - there):
                new = database.execute(f"INSERT INTO queue_entry ({', '.join(columns)}) SELECT {', '.join(columns)} "
                                       "FROM queue_entry WHERE id = ?", (entry,)).lastrowid
                database.execute(f"INSERT INTO event (subject, {', '.join(events)}) SELECT ?, {', '.join(events)} "
                                 "FROM event WHERE kind = 'entry' AND subject = ? ORDER BY id LIMIT 1", (new, entry))
        database.close()


def row(name, ours, theirs, peer, limit):
    held = ours <= limit
    print(f"{'ok  ' if held else 'MISS'} {name:38} {ours * 1e3:7.1f} ms against {theirs * 1e3:7.1f} ms ({peer})  "
          f"{ours / theirs:6.2f}  (limit {limit * 1e3:.0f} ms)", flush=True)
    return held


def adding(project):
    project.queue("add", "--", "true")
    peer = project.folder / "peer.db"
    project.run(tool("sqlite3"), peer, "PRAGMA journal_mode=WAL; CREATE TABLE entry (id INTEGER PRIMARY KEY, argv BLOB);")
    insert = "PRAGMA synchronous=FULL; INSERT INTO entry (argv) VALUES ('true');"
    ours, theirs = medians([lambda: project.queue("add", "-q", "--", "true"),
                            lambda: project.run(tool("sqlite3"), peer, insert)], TIMES)
    return row("queue add", ours, theirs, "sqlite3 INSERT", 0.010)


def listing(project):
    project.fill(ENTRIES)
    held = True
    for name, flags in (("text", []), ("JSON", ["--json"])):
        ours, theirs = medians([lambda: project.queue("ls", "--all", "-q", *flags),
                                lambda: project.run(tool("sqlite3"), project.database, "SELECT * FROM queue_now;")], TIMES)
        held &= row(f"queue ls of {ENTRIES} entries, {name}", ours, theirs, "sqlite3 SELECT", 0.050)
    return held


def running(project):
    start = seconds(lambda: project.queue("run", "--once", "-q"))
    rounds, bare = [], []
    for _ in range(max(3, TIMES // 5)):
        for _ in range(COMMANDS):
            project.queue("add", "-q", "--", "true")
        rounds.append((seconds(lambda: project.queue("run", "--once", "-q")) - start) / COMMANDS)
        bare.append(seconds(lambda: project.run("sh", "-c", f"for i in $(seq {COMMANDS}); do env true; done")) / COMMANDS)
    rounds.sort(), bare.sort()
    ours, theirs = rounds[len(rounds) // 2], bare[len(bare) // 2]
    return row("the runner, for each entry", ours, theirs, "sh", 0.020)


def main():
    rgpu = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/release/rgpu").resolve()
    if not rgpu.exists():
        sys.exit(f"there is no {rgpu}: cargo build --release -p rgpu")
    held = True
    for part in (adding, running, listing):
        with tempfile.TemporaryDirectory(prefix="rgpu-queue-") as folder:
            project = Project(rgpu, Path(folder))
            if part is listing:
                project.queue("add", "--", "true")
            held &= part(project)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
