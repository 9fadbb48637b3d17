#!/usr/bin/env python3
"""What tools/measure/ncu.py makes of the profiler's words, and of a machine without a profiler."""
import contextlib
import io
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools/measure"))
import ncu


class Beside(unittest.TestCase):
    def printed_without(self, gpus, which, build="/nowhere"):
        out = io.StringIO()
        with mock.patch.object(ncu, "output_of", lambda command: gpus), \
             mock.patch.object(ncu.shutil, "which", lambda program: which), contextlib.redirect_stdout(out):
            ncu.beside(pathlib.Path("/nowhere/profile.json"), pathlib.Path(build))
        return out.getvalue()

    def test_one_line_says_what_is_missing(self):
        self.assertEqual(self.printed_without("", None), "\nNot beside the profiler's counts: no NVIDIA GPU here.\n")
        self.assertEqual(self.printed_without("GPU 0: a card", None),
                         "\nNot beside the profiler's counts: no ncu (Nsight Compute) in PATH.\n")
        self.assertIn("no /nowhere/bin/stages yet: ./ladder --backend gpu", self.printed_without("GPU 0: a card", "ncu"))

    def test_the_launch_is_that_of_the_row(self):
        shape = {"batch": 1, "heads": 4, "kv_heads": 2, "n_q": 8, "n_k": 9, "head_dim": 64, "causal": True}
        self.assertEqual(ncu.launch_command({"stage": "14-lcsf", "shape": shape}),
                         ["stages", "launch", "14-lcsf", "--batch", "1", "--heads", "4", "--kv-heads", "2", "--n", "8",
                          "--n-k", "9", "--d", "64", "--causal"])

    def test_what_a_card_does_not_tell_is_left_out(self):
        row = {ncu.PIPES["microseconds"]: "12,000", ncu.PIPES["cycles"]: "7", ncu.PIPES["tensor %"]: "n/a"}
        self.assertEqual(ncu.busy(row), {"microseconds": 12.0, "cycles": 7.0})

    def test_tables(self):
        counted = [{"counts": {"global_read_sectors": 3}}, {"counts": {"global_read_sectors": 4}}]
        profiled = [{"kernel": "multiply<1>", "counts": {"global_read_sectors": 5}, "busy": {"cycles": 1.0}},
                    {"kernel": "softmax", "counts": {"global_read_sectors": 6}, "busy": {}}]
        lines = ncu.beside_tables(counted, profiled).splitlines()
        self.assertEqual(lines[1].split(), ["global", "read", "sectors", "7", "11"])
        self.assertEqual(lines[3].split(), ["multiply", "softmax"])
        self.assertEqual(lines[4].split(), ["cycles", "1"])


class Profiler(unittest.TestCase):
    """With a program in the place of ncu, which keeps its arguments and prints `text`."""

    def run_with(self, text, ask, status=0):
        with tempfile.TemporaryDirectory() as folder:
            fake = pathlib.Path(folder, "ncu")
            fake.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >{folder}/arguments\ncat <<'end'\n{text}end\nexit {status}\n")
            fake.chmod(0o755)
            with mock.patch.dict(os.environ, {"PATH": f"{folder}:{os.environ['PATH']}"}):
                try:
                    return ask()
                finally:
                    self.arguments = pathlib.Path(folder, "arguments").read_text().splitlines()

    def launches(self, *names):
        rows = [f'"{i}","{name}","{10 * i},000"\n' for i, name in enumerate(names)]
        return '==PROF== Connected\n"ID","Kernel Name","dram"\n"","","byte"\n' + "".join(rows)

    def test_rows_are_launches_in_base_units(self):
        rows = self.run_with(self.launches("a", "b"), lambda: ncu.run_profiler(["program", "--n", 1], {"dram"}))
        self.assertEqual([(row["Kernel Name"], ncu.number(row, "dram")) for row in rows], [("a", 0), ("b", 10000)])
        self.assertEqual(self.arguments[-3:], ["program", "--n", "1"])
        self.assertIn("base", self.arguments)
        self.assertNotIn("--kernel-name", self.arguments)

    def test_second_launches(self):
        ask = lambda names: lambda: ncu.second_launches(["program"], ["dram"], names)
        text = self.launches("f<1>", "f<1>", "g", "g")
        rows = self.run_with(text, ask(["^f", "g"]))
        self.assertEqual([ncu.number(row, "dram") for row in rows], [10000, 30000])
        self.assertIn("regex:^f|g", self.arguments)
        with self.assertRaisesRegex(SystemExit, "4 launches instead of 2: .'f<1>', 'g'"):
            self.run_with(text, ask(["f"]))
        with self.assertRaisesRegex(SystemExit, "saw g instead of h"):
            self.run_with(text, ask(["f", "h"]))

    def test_metrics_go_to_the_rows_of_their_launches(self):
        rows = [{"stage": "a"}, {"stage": "b"}]
        ncu.add_metrics(rows, [{"dram": "1,000.4"}, {"dram": "7"}], {"device_bytes": "dram"})
        self.assertEqual(rows, [{"stage": "a", "device_bytes": 1000}, {"stage": "b", "device_bytes": 7}])
        with self.assertRaisesRegex(SystemExit, "does not tell dram"):
            ncu.add_metrics([{}], [{"dram": "n/a"}], {"device_bytes": "dram"})
        with self.assertRaises(ValueError):
            ncu.add_metrics([{}], [], {"device_bytes": "dram"})

    def test_what_the_profiler_says_when_it_fails(self):
        with self.assertRaisesRegex(SystemExit, "(?s)ncu failed:.*no permission"):
            self.run_with("no permission\n", lambda: ncu.run_profiler(["program"], {"dram"}), status=1)


class Counts(unittest.TestCase):
    def test_cp_async_is_a_load_to_the_profiler(self):
        work = {"global": {"read": {"sectors": 2}, "cp_async": {"sectors": 5}}, "shared": {"read": {"wavefronts": 3}}}
        counts = ncu.counts_of(work)
        self.assertEqual((counts["global_read_sectors"], counts["cp_async_sectors"]), (7, 5))
        self.assertEqual((counts["shared_read_wavefronts"], counts["shared_write_wavefronts"]), (3, 0))


if __name__ == "__main__":
    unittest.main()
