"""The package against the program that the variable RGPU names, on a machine without a GPU. With
RGPU_TEST_HOST there is also a remote of that name that plays a GPU host. `tests/it/python.rs` runs it."""

import asyncio
import contextlib
import copy
import functools
import importlib
import inspect
import io
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import warnings
from datetime import timedelta
from pathlib import Path
from unittest import mock

import rgpu
from rgpu import (
    _arguments, _call, _commands, _documents, _error, _failure, _kernel, _magic, _messages, _program, _types, _words, aio,
)

COMMANDS = ["profile", "exec", "build", "disasm", "report", "compare"]
HOST = os.environ.get("RGPU_TEST_HOST")
SLEEP = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(600)"


def is_alive(pid):
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


def wait_for(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not become true in a minute")


class Folder(unittest.TestCase):
    """A test in a project of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        self.pid = Path(folder.name, "pid")

    def ended(self):
        """Waits until the program has ended that wrote its id."""
        pid = int(self.pid.read_text())
        wait_for(lambda: not is_alive(pid))

    def started(self):
        wait_for(lambda: self.pid.exists() and self.pid.read_text())


class Keywords(unittest.TestCase):
    def test_every_flag_of_the_help_is_a_keyword_and_nothing_else_is(self):
        for command in COMMANDS:
            # The flags of each tool have a topic of their own.
            flag = "--help=all" if command in ("profile", "exec") else "--help"
            text = subprocess.run([_program.find(), command, flag], capture_output=True, text=True, check=True).stdout
            flags = set(re.findall(r"^ {2,6}(?:-\w, )?--([a-z][a-z-]*)", text, re.MULTILINE))
            flags -= {"help", "version", "json", "quiet", "verbose", "color"}
            self.assertGreater(len(flags), 5, command)
            keywords = inspect.signature(getattr(rgpu, command)).parameters.values()
            keywords = {p.name.rstrip("_").replace("_", "-") for p in keywords if p.kind is p.KEYWORD_ONLY}
            self.assertEqual(keywords - {"progress", "cwd", "stdin"}, flags, command)
            self.assertEqual(inspect.signature(getattr(aio, command)), inspect.signature(getattr(rgpu, command)))

    def test_the_types_have_the_keywords_of_the_functions(self):
        stub = Path(_commands.__file__).with_suffix(".pyi").read_text()
        for command in COMMANDS:
            options = stub.split(f"class {command.title()}Options")[1].split("\ndef ")[0].split("@overload")[0]
            known = set(re.findall(r"^    (\w+): ", options, re.MULTILINE))
            for definition in re.findall(rf"^def {command}\((.*?)^\)", stub, re.MULTILINE | re.DOTALL):
                named = set(re.findall(r"^    \*?(\w+): ", definition, re.MULTILINE))
                parameters = set(inspect.signature(getattr(rgpu, command)).parameters)
                self.assertEqual(known | named, parameters, command)

    def test_keywords_become_words(self):
        def words(_name, **given):
            return _words.to_argv(_arguments.ARGUMENTS[_name], given)

        self.assertEqual(words("profile", kernel="vecadd", sudo=True, light=False, iters=3, arch=None),
                         ["--iters=3", "--kernel=vecadd", "--sudo"])
        self.assertEqual(words("profile", sweep={"n": [256, 512], "m": 1}), ["--sweep=n=256,512", "--sweep=m=1"])
        self.assertEqual(words("profile", sweep="n=1..4"), ["--sweep=n=1..4"])
        self.assertEqual(words("exec", env={"A": "b,c"}, timeout=1.5), ["--env=A=b,c", "--timeout=1.5"])
        self.assertEqual(words("exec", timeout=timedelta(minutes=1)), ["--timeout=60.0"])
        self.assertEqual(words("exec", file=Path("a.py"), command=["--x", "y"]), ["a.py", "--", "--x", "y"])
        self.assertEqual(words("profile", program="a b"), ["--", "a b"])
        self.assertEqual(words("disasm", what=("-a.cubin", Path("b"))), ["./-a.cubin", "b"])
        self.assertEqual(words("profile", metrics=["a", "b"], ncu_args="--x"), ["--metrics=a", "--metrics=b", "--ncu-args=--x"])
        with self.assertRaisesRegex(TypeError, "not a value of an argument"):
            words("profile", kernel=object())
        with self.assertRaises(TypeError):
            rgpu.profile(kernl="vecadd")
        with self.assertRaisesRegex(ValueError, "as a list"):
            rgpu.profile(kernel="vecadd", remote="a,b")


class Results(Folder):
    def test_a_kernel_is_profiled_without_a_gpu(self):
        profile = rgpu.profile(kernel="vecadd", problem_sizes="n=1000", remote="local", out="run")
        self.assertIsInstance(profile, rgpu.Profile)
        self.assertEqual(profile.kernel.name, "vecadd")
        self.assertIn(profile.rung, ("cpu", "nvtx", "host"))
        self.assertEqual(profile.exit_status, 0)
        self.assertEqual(len(profile.launches), 0)
        self.assertTrue(any(rung.ok for rung in profile.ladder))
        self.assertIn("vecadd", repr(profile))
        self.assertEqual(rgpu.report("run"), profile)
        self.assertEqual(rgpu.load("run/profile.json"), profile)
        self.assertIn("vecadd", rgpu.report("run", format="brief"))
        page = profile._repr_html_()
        self.assertIn("&lt;html", page)
        self.assertTrue(page.startswith("<iframe srcdoc="))
        # The border is within the width, so that an output has no scrollbar.
        self.assertIn("box-sizing: border-box; width: 100%", page)
        self.assertEqual(rgpu.report("run", lint="nvtx").to_dicts(), [])
        with self.assertRaises(rgpu.UsageError) as raised:
            rgpu.report("nosuch", format="markdown")
        self.assertIn("nosuch", raised.exception.what)

    def test_a_program_has_its_output_and_its_status(self):
        code = "import sys; print(sys.stdin.read().upper(), sys.argv[1:]); print('no', file=sys.stderr); sys.exit(3)"
        result = rgpu.exec(code=code, lang="py", command=["--a", "b c"], stdin="text", remote="local")
        self.assertEqual((result.exit, result.exit_status, result.signal), (3, 3, None))
        self.assertEqual(result.stdout, "TEXT ['--a', 'b c']\n")
        self.assertEqual(result.stderr, "no\n")
        # A gigabyte of input is not needed to see that none of it is lost.
        much = os.urandom(1 << 20)
        result = rgpu.exec(command=["sha256sum"], stdin=much, remote="local")
        import hashlib

        self.assertEqual(result.stdout.split()[0], hashlib.sha256(much).hexdigest())

    def test_other_results_have_other_types(self):
        run = rgpu.exec(code="print(1)", lang="py", detach=True, remote="local")
        self.assertIsInstance(run, rgpu.Run)
        self.assertEqual(run.state, "detached")
        self.assertEqual(run.wait().stdout, "1\n")
        plan = rgpu.profile(kernel="vecadd", dry_run=True, remote="local")
        self.assertIsInstance(plan, rgpu.Plan)
        self.assertGreater(len(plan.steps), 0)
        suite = rgpu.profile(kernel="vecadd", sweep={"n": [64, 128]}, remote="local")
        self.assertEqual([row.axes for row in suite.rows], [{"n": "64"}, {"n": "128"}])
        suite = rgpu.profile(kernel="vecadd", mode="nvtx", sweep=["n=64"], remote="local")
        self.assertEqual([row.axes for row in suite.rows], [{"n": "64"}])

    def test_the_version_is_that_of_the_program(self):
        told = subprocess.run([_program.find(), "--version"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(told.split()[1], rgpu.__version__)

    def test_a_detached_run_is_waited_for_and_cancelled(self):
        run = rgpu.profile(kernel="vecadd", problem_sizes="n=1000", remote="local", out="later", detach=True)
        with self.assertRaises(rgpu.ArtifactError) as raised:
            rgpu.report("later")
        self.assertIn("run.json').wait()` waits for its result", raised.exception.hints[0])
        profile = rgpu.load("later/run.json").wait()
        self.assertIsInstance(profile, rgpu.Profile)
        self.assertEqual(profile.run.id, run.id)
        self.assertEqual(run.wait(), profile)

        run = rgpu.exec(code=SLEEP, lang="py", command=[str(self.pid)], detach=True, remote="local")
        self.started()
        self.assertEqual(run.cancel().state, "cancelled")
        self.ended()
        with self.assertRaises(rgpu.Cancelled):
            run.wait()

    def test_a_profiled_program_has_its_output(self):
        code = "import sys; print('out'); print('no', file=sys.stderr)"
        for keywords in ({}, {"out": "own"}):
            profile = rgpu.exec(code=code, lang="py", mode="nvtx", remote="local", **keywords)
            os.makedirs("other", exist_ok=True)
            with contextlib.chdir("other") if hasattr(contextlib, "chdir") else contextlib.nullcontext():
                self.assertEqual((profile.stdout, profile.stderr), ("out\n", "no\n"))
        # A profile of a run that is elsewhere has the end of it.
        rungs = [{"step": "python", "stdout_tail": "pip\n"}, {"step": "profile-2", "stdout_tail": "end\n"}]
        elsewhere = _types.Profile({"ladder": rungs, "run": {"id": "no-such-run"}})
        self.assertEqual((elsewhere.stdout, elsewhere.stderr), ("end\n", ""))

    def test_a_kernel_given_as_a_program_is_named(self):
        with self.assertRaises(rgpu.UsageError) as raised:
            rgpu.profile("vecadd", remote="local")
        self.assertEqual(raised.exception.hints[0], 'did you mean `kernel="vecadd"`?')
        with self.assertRaises(rgpu.UsageError) as raised:
            rgpu.profile("no-such-program", remote="local")
        self.assertNotIn("did you mean", str(raised.exception))

    def test_a_failure_is_an_exception_with_code_and_hints(self):
        with self.assertRaises(rgpu.ConfigError) as raised:
            rgpu.profile(kernel="vecad")
        error = raised.exception
        self.assertEqual((error.code, error.exit_status, error.side), ("unknown_kernel", 3, "local"))
        self.assertIn("did you mean `vecadd`?", error.hints)
        self.assertIn("\n  help: did you mean `vecadd`?", str(error))
        with self.assertRaises(rgpu.UsageError):
            rgpu.compare("one")
        with self.assertRaisesRegex(rgpu.UsageError, "mode `bench` needs a kernel"):
            rgpu.exec(code="print(1)", lang="py", mode="bench", remote="local")
        late = rgpu.exec(code="import time; time.sleep(60)", lang="py", timeout=1, remote="local")
        self.assertEqual((late.timed_out, late.exit_status), (True, 124))

    def test_every_kind_of_failure_has_a_class(self):
        schema = json.loads(Path(__file__).parents[2].joinpath("schemas/error.json").read_text())
        kinds = schema["$defs"]["Exit"]
        kinds = kinds.get("enum") or [kind["const"] for kind in kinds["oneOf"]]
        for kind in set(kinds) - {"done", "findings"}:
            error = _error.of_document({"exit": 1, "error": {"code": "x", "what": "y", "exit": kind}})
            self.assertIsNot(type(error), rgpu.Error, kind)

    def test_a_result_of_another_kind_is_an_exception_with_the_result(self):
        call = _call.prepare("exec", {"file": "kernels.cu"})
        with self.assertRaisesRegex(rgpu.UnexpectedResult, "returns `ExecResult`, and the result is `Build`") as raised:
            _call.result("exec", {}, call, 0, b'{"schema": "rgpu.build/1"}')
        self.assertEqual(raised.exception.document, {"schema": "rgpu.build/1"})
        self.assertEqual(raised.exception.result, _types.Build({"schema": "rgpu.build/1"}))
        copied = pickle.loads(pickle.dumps(raised.exception))
        self.assertEqual((str(copied), copied.document), (str(raised.exception), {"schema": "rgpu.build/1"}))
        with self.assertRaisesRegex(rgpu.UnexpectedResult, "the result is `rgpu.later/1`"):
            _call.result("exec", {"dry_run": True}, call, 0, b'{"schema": "rgpu.later/1"}')
        with self.assertRaisesRegex(rgpu.UnexpectedResult, "a document without a schema"):
            _call.result("exec", {}, call, 0, b"[1]")

    def test_a_list_of_remotes_gives_one_run_or_several_together(self):
        one = rgpu.profile(kernel="vecadd", problem_sizes="n=1000", remote=["local"])
        self.assertIsInstance(one, rgpu.Profile)
        call = _call.prepare("profile", {"remote": ["a", "b"]})
        self.assertIn("--remote=a,b", call.argv)
        several = _call.result("profile", {"remote": ["a", "b"]}, call, 0, b'{"schema": "rgpu.fan_out/1"}')
        self.assertIsInstance(several, rgpu.FanOut)

    def test_a_result_reports_its_own_run_after_later_ones(self):
        rgpu.profile(kernel="vecadd", problem_sizes="n=1000", remote="local", out="own")
        rgpu.profile(kernel="vecadd", problem_sizes="n=1000", remote="local")
        named, filed = rgpu.report("latest"), rgpu.report("own")
        both = rgpu.compare(kernel=["vecadd", "vecadd"], problem_sizes="n=1000", remote="local")
        loose = rgpu.compare(named.run.id, "own")
        rgpu.profile(kernel="vecadd", problem_sizes="n=2000", remote="local")
        os.mkdir("other")
        os.chdir("other")
        for profile in (named, filed, pickle.loads(pickle.dumps(filed))):
            self.assertEqual(json.loads(profile.report("json"))["run"]["id"], profile.run.id)
        self.assertNotEqual(named.run.id, filed.run.id)
        self.assertEqual(json.loads(both.report("json")), both.to_dict())
        self.assertIn("<iframe", both._repr_html_())
        with self.assertRaisesRegex(ValueError, "no run has this result"):
            loose.report()
        self.assertIsNone(loose._repr_html_())

    def test_events_are_told_in_their_order_and_an_exception_there_stops_the_run(self):
        events = []
        rgpu.exec(code="print(1)", lang="py", progress=events.append, remote="local")
        self.assertEqual((events[0]["said"], events[0]["text"]), ("where", "on local"))
        self.assertEqual((events[-1]["said"], events[-1]["text"]), ("finished", "finished"))
        self.assertIn("running snippet.py", [event["text"] for event in events])

        def stop(event):
            if self.pid.exists() or event.get("event") == "output":
                raise RuntimeError("enough")

        code = SLEEP.replace("time.sleep", "print('x', flush=True); time.sleep")
        with self.assertRaisesRegex(RuntimeError, "enough"):
            rgpu.exec(code=code, lang="py", command=[str(self.pid)], progress=stop, remote="local")
        self.ended()

    @unittest.skipUnless(HOST, "no played host")
    def test_launches_have_metrics_and_become_rows(self):
        profile = rgpu.profile(kernel="vecadd", mode="ncu", remote=HOST)
        launch = profile.launches[0]
        self.assertEqual(launch.kernel, "vecadd")
        self.assertGreater(launch.duration_ns, 0)
        metric = launch.metrics["sm__throughput.avg.pct_of_peak_sustained_elapsed"]
        self.assertGreater(metric.value, 0)
        row = _documents.flat(profile.launches.to_dicts()[0])
        self.assertEqual(row["sm__throughput.avg.pct_of_peak_sustained_elapsed"], metric.value)
        both = rgpu.compare(kernel=["vecadd", "vecadd"], remote=HOST, mode="bench", out="pair")
        self.assertIn(both.verdict, ("SAME", "FASTER", "SLOWER", "AMBIGUOUS"))
        with self.assertRaises(rgpu.UnexpectedResult) as raised:
            rgpu.report("pair")
        self.assertEqual(raised.exception.document["schema"], "rgpu.compare/1")
        self.assertEqual(rgpu.load("pair/compare.json"), both)


class Stopping(Folder):
    def test_ctrl_c_stops_the_program_on_the_host(self):
        script = f"import rgpu; rgpu.exec(code={SLEEP!r}, lang='py', command=[{str(self.pid)!r}], remote='local')"
        python = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
        self.started()
        python.send_signal(signal.SIGINT)
        _, messages = python.communicate(timeout=60)
        self.assertIn("KeyboardInterrupt", messages)
        self.assertEqual(python.returncode, -signal.SIGINT)
        self.assertFalse(is_alive(int(self.pid.read_text())), "it went on after the end of Python")

    def test_a_cancelled_coroutine_stops_the_program_on_the_host(self):
        async def stop():
            task = asyncio.ensure_future(aio.exec(code=SLEEP, lang="py", command=[str(self.pid)], remote="local"))
            await asyncio.get_running_loop().run_in_executor(None, self.started)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertFalse(is_alive(int(self.pid.read_text())))

        asyncio.run(stop())

    def test_coroutines_run_side_by_side(self):
        async def several():
            calls = [aio.exec(code=f"print({n})", lang="py", remote="local") for n in range(3)]
            return [result.stdout for result in await asyncio.gather(*calls)]

        self.assertEqual(asyncio.run(several()), ["0\n", "1\n", "2\n"])
        with self.assertRaises(rgpu.ConfigError):
            asyncio.run(aio.profile(kernel="vecad"))


class Pipes(unittest.TestCase):
    """The program's pipes, with a script in its place."""

    def script(self, text):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name, "rgpu")
        path.write_text(f"#!{sys.executable}\nimport os, signal, sys, time\n{textwrap.dedent(text)}")
        path.chmod(0o755)
        self.enter(mock.patch.object(_program, "find", return_value=str(path)))

    def enter(self, context):
        context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)

    def stopped(self):
        """Runs the script until its first event; how long it took to stop it."""

        def stop(event):
            raise RuntimeError("enough")

        call = _program.Call(["profile"], progress=stop, has_events=True)
        start = time.monotonic()
        with self.assertRaisesRegex(RuntimeError, "enough"):
            call.run()
        self.assertIsNotNone(call.process.poll())
        return call.process.returncode, time.monotonic() - start

    def test_a_program_that_writes_much_while_it_stops_comes_to_its_end(self):
        self.script("""
            events = int(next(word for word in sys.argv if word.startswith("--events=")).rsplit("/", 1)[1])

            def end(*_):
                for pipe in (2, events, 1):
                    for _ in range(8):
                        os.write(pipe, b"x" * (1 << 16))
                os._exit(7)

            signal.signal(signal.SIGINT, end)
            os.write(events, b"{}\\n")
            time.sleep(600)
        """)
        self.assertEqual(self.stopped()[0], 7)

    def test_a_program_that_does_not_stop_in_its_time_is_killed(self):
        self.script("""
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.write(int(sys.argv[-1].rsplit("/", 1)[1]), b"{}\\n")
            time.sleep(600)
        """)
        self.enter(mock.patch.object(_program, "_STOP_TIMEOUT_S", 0.2))
        self.enter(mock.patch.object(_program, "_SECOND_STOP_TIMEOUT_S", 0.2))
        status, seconds = self.stopped()
        self.assertEqual(status, -signal.SIGKILL)
        self.assertLess(seconds, 60)

    def test_a_letter_in_two_pieces_is_shown_whole(self):
        self.script("""
            for piece in (b"\\xe2\\x80", b"\\xa6 done"):
                os.write(2, piece)
                time.sleep(0.5)
        """)
        with contextlib.redirect_stderr(io.StringIO()) as messages:
            _program.Call(["profile"], progress=True).run()
        self.assertEqual(messages.getvalue(), "… done")

    def test_an_error_is_shown_once_and_a_repeated_line_too(self):
        self.script("""
            os.write(2, b"asking\\nasking\\nerror: not the last\\n\\x1b[1;31merror:\\x1b[0m no\\n  help: yes\\n")
        """)
        call = _program.Call(["profile"], progress=True)
        for has_exception, shown in ((True, "error: not the last\n"), (False, "error: not the last\n\x1b[1;31merror:\x1b[0m no\n  help: yes\n")):
            with contextlib.redirect_stderr(io.StringIO()) as messages:
                call.messages.clear()
                call.run()
                self.assertEqual(messages.getvalue(), "asking\n")
                call.end_messages(has_exception=has_exception)
            self.assertEqual(messages.getvalue(), "asking\n" + shown)
        error = _error.of_messages(2, call.messages.decode())
        self.assertEqual((error.what, error.hints), ("no", ["yes"]))

    def test_a_program_that_cannot_start_leaves_no_pipe_open(self):
        call = _program.Call(["profile"], progress=print, has_events=True)
        before = os.listdir("/proc/self/fd")
        with tempfile.NamedTemporaryFile() as file, mock.patch.object(_program, "find", return_value=file.name):
            with self.assertRaises(PermissionError):
                call.run()
        with mock.patch.object(_program, "find", side_effect=_error.no_program()):
            with self.assertRaises(rgpu.ConfigError):
                call.run()
        self.assertEqual(os.listdir("/proc/self/fd"), before)


class Documents(unittest.TestCase):
    def test_fields_that_are_missing_are_none_or_empty(self):
        profile = _types.Profile({"schema": "rgpu.profile/1", "launches": [{"id": 0, "kernel": "k", "later": 1}]})
        launch = profile.launches[0]
        self.assertIsNone(launch.duration_ns)
        self.assertEqual((launch.grid, launch.metrics, launch.region_inferred), ([], {}, False))
        self.assertEqual(launch.later, 1)
        self.assertIsNone(profile.timing)
        self.assertEqual(len(profile.regions), 0)
        with self.assertRaisesRegex(AttributeError, "`Launch` has no field `durations`"):
            launch.durations
        with self.assertRaisesRegex(AttributeError, "did you mean `duration_ns`?"):
            launch.duration
        self.assertEqual(profile.launches[:1][0], launch)
        for copied in (pickle.loads(pickle.dumps(profile)), copy.deepcopy(profile)):
            self.assertEqual(copied, profile)
        profile._set_origin(1, ["/usr", "no-such-run"], "/")
        for copied in (pickle.loads(pickle.dumps(profile)), copy.deepcopy(profile)):
            self.assertEqual((copied.exit_status, copied._paths, copied._cwd), (1, ("/usr",), "/"))
        self.assertIn("duration_ns", dir(launch))

    def test_records_are_shown_as_a_short_table(self):
        regions = [{"path": ["a", f"part {n}"], "host_ns": n, "metrics": {"x" * 90: {"value": 1.5}}} for n in range(12)]
        profile = _types.Profile({"regions": regions, "warnings": [{"code": "c", "text": "<why>"}]})
        lines = str(profile.regions).splitlines()
        self.assertEqual(lines[:2] + lines[-1:], [
            "12 × Region", "  path       host_ns", "… 2 more rows, 1 more columns: `to_pandas()` has all",
        ])
        self.assertEqual((len(lines), lines[2]), (13, "  a::part 0        0"))
        self.assertEqual(repr(profile.regions), "<12 × Region>")
        self.assertEqual(str(profile.warnings), "1 × Gap\n  code  text\n  c     <why>")
        self.assertIn("<td>c</td><td>&lt;why&gt;</td>", profile.warnings._repr_html_())
        self.assertEqual(str(profile.launches), "0 × Launch")
        result = _types.ExecResult({"exit": 0, "run": "r", "timed_out": False})
        with mock.patch.object(_types.ExecResult, "stdout", "1\n"):
            self.assertEqual(repr(result), r"ExecResult(exit=0, stdout='1\n', run='r')")

    def test_an_empty_table_has_the_columns_of_its_type(self):
        columns = _documents.columns(_types.Launch)
        self.assertLessEqual({"kernel", "duration_ns", "registers"}, set(columns))
        self.assertNotIn("metrics", columns)
        self.assertIn("from", _documents.columns(_types.Metric))
        # A record with all its fields has no other columns.
        record = {"id": "r", "text": "t", "stake": {"ns": 1}}
        self.assertLessEqual(set(_documents.flat(record)), set(_documents.columns(_types.Finding)))
        pandas = mock.Mock()
        with mock.patch.dict(sys.modules, {"pandas": pandas}):
            _types.Profile({}).launches.to_pandas()
            pandas.DataFrame.assert_called_once_with(columns=columns)
            rgpu.Sweep(_types.Profile({}), {"work(n=1)": {"n": 1}}).launches_to_pandas()
            pandas.DataFrame.assert_called_with(columns=["n", *columns])

    def test_the_kind_of_a_result_depends_on_all_keywords(self):
        suite = {"schema": "rgpu.suite/1"}
        call = _call.Call([])
        for keywords in ({"sweep": {"n": [1]}, "mode": "bench"}, {"sweep": ["n=1,2"], "mode": "nvtx"}):
            self.assertIsInstance(_call._typed("profile", keywords, call, 0, suite), rgpu.Suite)
        with self.assertRaises(rgpu.UnexpectedResult):
            _call._typed("profile", {"mode": "bench"}, call, 0, suite)

    def test_an_unknown_metric_is_answered_with_a_similar_one(self):
        launch = _types.Launch({"metrics": {"dram__bytes_read.sum": {"value": 1}}})
        with self.assertRaisesRegex(KeyError, "did you mean `dram__bytes_read.sum`"):
            launch.metrics["dram__bytes_read"]
        self.assertEqual(copy.deepcopy(launch.metrics), launch.metrics)

    def test_events_have_text_for_users(self):
        for event, text in (
            ({"said": "uploading", "sent": 1, "total": 2}, "uploading: 1 of 2 bytes"),
            ({"said": "finished", "exit": 6}, "finished with exit status 6"),
            ({"said": "job", "event": "ended", "outcome": {"how": "queue_timeout"}}, "the job ended: queue timeout"),
            ({"said": "job", "event": "output", "len": 1}, ""),
            ({"said": "later"}, ""),
            ({"said": "compiling"}, ""),
        ):
            self.assertEqual(_messages.describe_event(event), text)

    def test_a_field_called_like_a_word_of_python_has_an_underscore(self):
        share = _types.Region({"path": ["a"], "from": "raw/x"})
        self.assertEqual(share.from_, "raw/x")

    def test_every_field_of_every_class_can_be_read(self):
        for kind in vars(_types).values():
            if isinstance(kind, type) and issubclass(kind, _documents.Record):
                record = kind({})
                for name in _documents._readers(kind):
                    getattr(record, name)
                fields = {name for name in kind.__dict__.get("__annotations__", {}) if not name.startswith("_")}
                inherited = set(dir(_documents.ProfileMethods)) & fields
                self.assertFalse(inherited, f"{kind.__name__}: a field hides a method")

    def test_only_documents_are_loaded(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "x.json")
            path.write_text(json.dumps({"schema": "rgpu.other/1"}))
            with self.assertRaisesRegex(ValueError, "rgpu.other/1"):
                rgpu.load(path)

    def test_a_log_is_read_below_its_run_folder_and_through_no_link(self):
        with tempfile.TemporaryDirectory() as folder:
            secret = Path(folder, "secret.stdout")
            secret.write_text("secret")
            run = Path(folder, "run")
            log = run / "log"
            log.mkdir(parents=True)
            document = {"schema": "rgpu.exec/1", "exit": 0, "folder": folder}
            (run / "exec.json").write_text(json.dumps(document))
            # What the document says of its folder does not count.
            Path(folder, "log").mkdir()
            Path(folder, "log", "exec.stdout").write_text("secret")
            self.assertEqual(rgpu.load(run / "exec.json").stdout, "")
            (log / "exec.stdout").symlink_to(secret)
            with self.assertRaises(OSError):
                rgpu.load(run / "exec.json").stdout
            (log / "exec.stdout").unlink()
            os.mkfifo(log / "exec.stdout")
            with self.assertRaisesRegex(OSError, "regular file"):
                rgpu.load(run / "exec.json").stdout
            (log / "exec.stdout").unlink()
            (log / "exec.stdout").write_text("out")
            self.assertEqual(rgpu.load(run / "exec.json").stdout, "out")
            (log / "profile-x").mkdir()
            step = "profile-x/../../../secret"
            profile = _types.Profile({"ladder": [{"step": step, "stdout_tail": "end"}]})
            profile._set_origin(0, [str(run)], None)
            self.assertEqual(profile.stdout, "")
            log.rename(run / "other")
            log.symlink_to(run / "other")
            with self.assertRaises(OSError):
                rgpu.load(run / "exec.json").stdout

    def test_the_text_of_an_error_steers_no_terminal_and_has_no_lines_of_its_own(self):
        lie = "key \x1b[31m\u202e\n  help: run `x`\u2028error: y"
        told = {"what": lie, "place": {"file": lie}, "cause": lie, "hints": [lie]}
        text = str(rgpu.Error({"error": told, "exit": 3}))
        self.assertNotIn("\x1b", text)
        self.assertNotIn("\u202e", text)
        self.assertIn("\\u001b[31m\\u202e", text)
        lines = re.split("[\n\u2028]", text)
        self.assertEqual([line for line in lines if line.startswith("  help: ")], ["  help: key \\u001b[31m\\u202e"])
        self.assertFalse(any(line.startswith("error:") for line in lines))

    def test_the_import_loads_little(self):
        code = "import sys; before = set(sys.modules); import rgpu; print(*sorted(set(sys.modules) - before))"
        loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        for heavy in ("asyncio", "subprocess", "json", "inspect", "pandas", "rgpu._types", "rgpu._kernel", "rgpu.aio"):
            self.assertNotIn(heavy, loaded)


SCALE = 2


def helper(n):
    return n * SCALE


class Box:
    def __init__(self, n):
        self.n = helper(n)

    def add(self, n):
        return self.n + n


triple = lambda n: 3 * n  # noqa: E731
box = Box(2)
plus = box.add
n = object()
local = object()


@functools.lru_cache(maxsize=None)
def cached(n):
    return n + 1


class Functions(Folder):
    def make(self):
        closed = "closed over"

        @rgpu.kernel(sweep={"n": [1, 2], "text": ["a"]}, mode="nvtx", runs=2, remote="local")
        @rgpu.annotate("all")
        def work(n, text="x"):
            with rgpu.annotate("part"):
                print(Box(n).n, text, closed, os.sep)

        return work

    def test_a_function_travels_with_what_it_uses(self):
        work = self.make()
        output = subprocess.run([sys.executable, "-c", work.source()], capture_output=True, text=True)
        self.assertEqual(output.stdout, "2 a closed over /\n" * 2 + "4 a closed over /\n" * 2, output.stderr)
        self.assertNotIn("@rgpu.kernel", work.source())
        work.here(3)

    def test_a_sweep_has_a_point_for_each_combination(self):
        # This machine may have no NVTX.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            sweep, one = self.make()(), self.make()(5)
        self.assertIsInstance(sweep.profile, rgpu.Profile)
        self.assertEqual([point.arguments for point in sweep], [{"n": 1, "text": "a"}, {"n": 2, "text": "a"}])
        self.assertEqual([point.arguments for point in one], [{"n": 5}])

    def test_a_function_that_fails_on_the_host_is_an_exception_with_its_point(self):
        @rgpu.kernel(sweep={"n": [1, 2, 3]}, mode="nvtx", remote="local")
        def work(n):
            if n == 2:
                raise ValueError("two\nis bad")

        with self.assertRaises(rgpu.KernelError) as raised:
            work()
        error = raised.exception
        self.assertEqual(error.what, "`work` failed at n=2: ValueError: two")
        self.assertEqual((error.place["point"], error.exit_status), ("work(n=2)", 1))
        self.assertTrue(error.cause.endswith("ValueError: two\nis bad"), error.cause)

        @rgpu.kernel(mode="nvtx", remote="local", timeout=1)
        def late(n):
            import time

            time.sleep(60)

        with self.assertRaisesRegex(rgpu.KernelError, "`late` failed at n=1: .* was stopped after [0-9]+ s"):
            late(1)

        # The status of a program under the sanitizer tells of faults.
        found = _types.Profile({"warnings": [{"code": "program_status"}], "run": {"id": "x"}})
        _failure.check(found, "sanitizer", "work", {})
        with self.assertRaises(rgpu.KernelError):
            _failure.check(found, "ncu", "work", {})

    def test_a_host_without_nvtx_is_told_with_what_to_do(self):
        work = self.make()
        source = work.source().replace("_rgpu._run(", "_rgpu._nvtx = lambda: None\n_rgpu._run(")
        messages = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True).stderr
        profile = _types.Profile({"ladder": [{"step": "profile", "stderr_tail": messages}]})
        self.assertTrue(_failure.has_no_nvtx(profile), messages)
        with self.assertWarnsRegex(RuntimeWarning, r'dependencies=\["nvtx"\]'):
            _kernel._warn_without_nvtx(profile, "work")
        self.assertEqual([warning.code for warning in profile.warnings], ["no_nvtx_library"])

    def test_the_decorator_needs_no_parentheses_and_knows_its_keywords(self):
        @rgpu.kernel
        def work(n=3):
            print(n)

        self.assertIsInstance(work, rgpu.KernelFunction)
        output = subprocess.run([sys.executable, "-c", work.source()], capture_output=True, text=True)
        self.assertEqual(output.stdout, "3\n", output.stderr)
        with self.assertRaisesRegex(TypeError, "no keyword `mod`: did you mean `mode`?"):
            rgpu.kernel(mod="nvtx")
        with self.assertRaisesRegex(TypeError, "no keyword `command`"):
            rgpu.kernel(command="x")
        with self.assertRaisesRegex(TypeError, "'nvtx' is no function"):
            rgpu.kernel("nvtx")

    def test_a_large_package_is_told_with_its_size(self):
        self.assertIn("needs Torch>=2, nvtx: ", _kernel._install_note("work", ["Torch>=2", "nvtx"]))
        self.assertIn("about 5 GB", _kernel._install_note("work", ["nvtx", "torch[x] >= 2"]))
        self.assertNotIn("GB", _kernel._install_note("work", ["torchtyping", "nvtx"]))

    def test_points_find_their_regions_and_launches(self):
        name = "work(n=1)"
        profile = _types.Profile({
            "regions": [{"path": [name], "host_ns": 5}, {"path": [name, "part"], "host_ns": 4}, {"path": ["work(n=2)"]}],
            "launches": [{"id": 0, "kernel": "k", "region": [name, "part"]}, {"id": 1, "kernel": "k"}],
        })
        sweep = rgpu.Sweep(profile, {name: {"n": 1}, "work(n=2)": {"n": 2}})
        self.assertEqual([[region.path for region in point.regions] for point in sweep],
                         [[[name], [name, "part"]], [["work(n=2)"]]])
        self.assertEqual([len(point.launches) for point in sweep], [1, 0])

    def test_what_cannot_travel_is_refused(self):
        secret = object()

        @rgpu.kernel()
        def work():
            print(secret)

        with self.assertRaisesRegex(TypeError, "`work` uses `secret`"):
            work.source()
        for name, function in {
            "triple": lambda: triple(1),
            "box": lambda: box.n,
            "plus": lambda: plus(1),
        }.items():

            def user():
                pass

            with self.assertRaisesRegex(TypeError, f"`user` uses `{name}`, which cannot be sent"):
                _kernel._add(name, function.__globals__[name], user, {})
        with self.assertRaisesRegex(TypeError, "`<lambda>` cannot be sent: only a function that `def`"):
            rgpu.kernel()(lambda: 0).source()
        with self.assertRaisesRegex(TypeError, "cannot be sent"):
            rgpu.kernel(configs=[object()])(lambda n: n)
        with self.assertRaises(TypeError):
            rgpu.kernel(sweep={"m": [1]})(lambda n: n)
        with self.assertRaises(ValueError):
            rgpu.kernel(runs=0)(lambda: 0)
        points = rgpu.kernel(configs=[1, (2,), {"n": 3}, 3])(lambda n: n).points
        self.assertEqual(points, [{"n": 1}, {"n": 2}, {"n": 3}])

    def test_equal_numbers_of_other_types_are_other_points(self):
        points = rgpu.kernel(sweep={"n": [1, True, 1.0, 1]})(lambda n: n).points
        self.assertEqual([repr(point["n"]) for point in points], ["1", "True", "1.0"])

    def test_parameters_and_locals_are_no_names_of_the_file(self):
        @rgpu.kernel(sweep={"n": [1]})
        def work(n):
            local = cached(n)
            print(local, [box for box in range(2)])

        output = subprocess.run([sys.executable, "-c", work.source()], capture_output=True, text=True)
        self.assertEqual(output.stdout, "2 [0, 1]\n", output.stderr)

    def test_modules_of_the_user_are_refused(self):
        Path("own_part.py").write_text("def part():\n    return 1\n")
        sys.path.insert(0, os.getcwd())
        self.addCleanup(sys.path.remove, os.getcwd())
        self.addCleanup(sys.modules.pop, "own_part", None)
        own_part = importlib.import_module("own_part")
        part = own_part.part

        @rgpu.kernel()
        def uses_module():
            own_part.part()

        @rgpu.kernel()
        def uses_function():
            part()

        for work, name in ((uses_module, "own_part"), (uses_function, "part")):
            with self.assertRaisesRegex(TypeError, f"`{name}` of your module `own_part`, which the host lacks"):
                work.source()

    def test_what_gives_no_profile_is_refused_before_anything_starts(self):
        for flags in ({"detach": True}, {"dry_run": True}, {"remote": ["a", "b"]}):
            with self.assertRaisesRegex(ValueError, f"`{next(iter(flags))}`"):
                rgpu.kernel(**flags)


class Cells(Folder):
    def test_a_cell_runs_on_the_host(self):
        result = _magic.run_cell("--remote local -- a 'b c'", "import sys\nprint(sys.argv[1:])\n")
        self.assertEqual(result.stdout, "['a', 'b c']\n")
        result = _magic.run_cell("--remote local --lang sh", "echo $((6 * 7))\n")
        self.assertEqual(result.stdout, "42\n")
        with self.assertRaises(rgpu.UsageError) as raised:
            _magic.run_cell("--no-such-flag", "")
        self.assertIn("usage: %%rgpu", str(raised.exception))
        self.assertNotIn("rgpu exec", str(raised.exception))
        with self.assertRaisesRegex(rgpu.UsageError, "No closing quotation"):
            _magic.run_cell("'a", "")

    def shell(self):
        class Shell:
            user_ns = {}
            input_transformers_cleanup = []

            def register_magic_function(self, function, kind, name):
                self.function = function
                assert (kind, name) == ("cell", "rgpu")

        shell = Shell()
        rgpu.load_ipython_extension(shell)
        return shell

    def test_the_extension_prints_the_output_or_returns_the_profile(self):
        shell = self.shell()
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertIsNone(shell.function("--remote local", "print(1)"))
            profile = shell.function("--remote local --mode nvtx", "print(2)")
        self.assertIsInstance(profile, rgpu.Profile)
        self.assertEqual(out.getvalue(), "1\n2\n")

    def test_a_cell_that_fails_raises_after_its_output(self):
        shell = self.shell()
        for flags in ("", " --mode nvtx"):
            with contextlib.redirect_stdout(io.StringIO()) as out, self.assertRaises(rgpu.KernelError) as raised:
                shell.function("--remote local" + flags, "print(1); raise SystemExit(2)")
            self.assertTrue(out.getvalue().startswith("1\n"), out.getvalue())
            self.assertIn("exit status 2", raised.exception.what)
            self.assertEqual(len(raised.exception._render_traceback_()), 1)
            self.assertEqual(shell.user_ns["_rgpu"].exit_status, 2)
        with self.assertRaisesRegex(rgpu.KernelError, "was stopped"):
            shell.function("--remote local --timeout 1", "import time; time.sleep(60)")
        with contextlib.redirect_stderr(io.StringIO()) as messages:
            self.assertIsNone(shell.function("--remote local --no-raise", "raise SystemExit(2)"))
        self.assertIn("exit status 2", messages.getvalue())

    def test_help_of_a_cell_is_its_own(self):
        shell = self.shell()
        with contextlib.redirect_stdout(io.StringIO()) as out:
            shell.function("--help", "\n")
        self.assertIn("Usage: %%rgpu", out.getvalue())
        self.assertIn("--timeout", out.getvalue())
        (fill,) = shell.input_transformers_cleanup
        self.assertEqual(fill(["%%rgpu --help\n"]), ["%%rgpu --help\n", "\n"])
        self.assertEqual(fill(["%%rgpu\n"]), ["%%rgpu\n"])


class Program(unittest.TestCase):
    def test_the_programs_place_is_its_wheels_then_the_variable_then_path(self):
        with tempfile.TemporaryDirectory() as folder:
            packages = Path(folder, "lib/site-packages")
            code = "from rgpu import _program; print(_program.find())"

            def found(**variables):
                env = {"PYTHONPATH": str(packages), "PATH": folder, **variables}
                ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=folder)
                return ended.stdout.strip() or ended.stderr

            packages.mkdir(parents=True)
            os.symlink(Path(rgpu.__file__).parent, packages / "linked")
            import shutil

            shutil.copytree(Path(rgpu.__file__).parent, packages / "rgpu")
            self.assertIn("the program `rgpu` is not installed", found())
            on_path = Path(folder, "rgpu")
            on_path.write_text("#!/bin/sh\n")
            on_path.chmod(0o755)
            self.assertEqual(found(), str(on_path))
            self.assertEqual(found(RGPU="/elsewhere/rgpu"), "/elsewhere/rgpu")
            program = Path(folder, "bin/rgpu")
            program.parent.mkdir()
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
            record = packages / "rgpu-1.dist-info/RECORD"
            record.parent.mkdir()
            record.write_text("rgpu/__init__.py,,\n../../bin/rgpu,sha256=x,1\n")
            self.assertEqual(Path(found(RGPU="/elsewhere/rgpu")).resolve(), program.resolve())


if __name__ == "__main__":
    unittest.main()
