"""wheel_tool.py NAME ARGS: replaces itself with the program NAME from NVIDIA's wheels."""

import glob
import os
import sys
import sysconfig

found = sorted(glob.glob(os.path.join(sysconfig.get_path("purelib"), "nvidia", "cu*", "bin", sys.argv[1])))
if not found:
    sys.exit(f"wheel_tool: there is no `{sys.argv[1]}` in this environment")
os.environ["PATH"] = os.path.dirname(found[-1]) + os.pathsep + os.environ.get("PATH", "")
os.execv(found[-1], [found[-1], *sys.argv[2:]])
