"""The app's front as `modal_app:local` runs it, on a platform in trouble.

What goes wrong stands in files of the folder RGPU_LOCAL, read anew each time:

| file | what |
|---|---|
| `away` | the Volume's API is out of reach while this is there |
| `every` | of so many requests to the Volume one fails |
| `hold` | the container stands still before it keeps a piece of this name, and makes `held`; `done` it keeps first |
| `unborn` | calls are taken, and no container comes of them: each is over after a second |
"""

import fnmatch
import itertools
import os
import subprocess
import sys
import time

import modal
import modal_app
from modal_app import FolderBox, Front, PatientBox, Processes, local_home, serve, setting

CONTAINER = sys.argv[1:2] == ["carry"]
COUNT = itertools.count(1)

# As long as an outage in a test may last.
modal_app.FRONT_PATIENCE = 2.0


def word(name):
    try:
        return (local_home() / name).read_text().strip()
    except FileNotFoundError:
        return ""


class TroubledBox(FolderBox):
    def trouble(self):
        if (local_home() / "away").exists():
            raise modal.exception.ServiceError("the Volume is out of reach")
        every = word("every")
        if every and next(COUNT) % int(every) == 0:
            raise modal.exception.ConnectionError("the Volume did not answer")

    def hold(self, name):
        pattern = word("hold")
        if CONTAINER and pattern and fnmatch.fnmatch(name, f"calls/*/{pattern}"):
            (local_home() / "held").touch()
            time.sleep(600)

    def put(self, name, data):
        self.trouble()
        self.hold(name)
        super().put(name, data)

    def put_all(self, files):
        self.trouble()
        for name, data in files.items():
            if not name.endswith("/done"):
                self.hold(name)
            super().put(name, data if isinstance(data, bytes) else data.read_bytes())
        for name in files:
            self.hold(name)

    def get(self, name):
        self.trouble()
        return super().get(name)

    def names(self, folder):
        self.trouble()
        return super().names(folder)

    def remove(self, name):
        self.trouble()
        super().remove(name)


class TroubledCalls(Processes):
    def spawn(self, job, ticket):
        what = [__file__, "carry", job, ticket]
        if word("unborn"):
            what = ["-c", "import time; time.sleep(1)"]
        child = subprocess.Popen([sys.executable, *what])
        self.running[str(child.pid)] = child
        return str(child.pid)


def box(patience):
    return PatientBox(TroubledBox(local_home() / "volume"), patience)


def local():
    home = local_home()
    calls, agent = TroubledCalls(home), setting("RGPU_AGENT")
    return serve(lambda: Front(box(modal_app.FRONT_PATIENCE), calls, agent, home / "front", None))


if __name__ == "__main__":
    assert CONTAINER
    modal_app.carry(
        *sys.argv[2:4],
        str(os.getpid()),
        box(60.0),
        setting("RGPU_AGENT"),
        str(local_home() / "gpu"),
    )
