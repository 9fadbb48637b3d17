#!/usr/bin/env python3
"""What tools/measure/compare_torch.py does without GPU and PyTorch: grids, rules, turns, ratios, result rows."""
import ctypes
import io
import contextlib
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "tools/measure/compare_torch.py"
sys.path.insert(0, str(SCRIPT.parent))
import card
import checks
import compare_lists as cl
import compare_torch as ct
import compare_varlen as cv
import kernels
import problems
import training_step as ts
import tune
from kernels import CUDNN, FLASH
from problems import Shape

HEAD = problems.shape(128, 1024, False, batch=1, heads=1)
RIGHT = {"error": 2e-3, "worst_row": 3e-3}


class Problems(unittest.TestCase):
    def test_the_full_grid_is_that_of_the_papers(self):
        grid = ct.parse([]).shapes
        self.assertEqual(len(set(grid)), 24)
        self.assertEqual({(s.head_dim, s.causal) for s in grid}, {(d, c) for d in (64, 128) for c in (False, True)})
        self.assertEqual({s.n_q for s in grid}, {512, 1024, 2048, 4096, 8192, 16384})
        for s in grid:
            self.assertEqual((s.batch * s.n_q, s.heads * s.head_dim), (16384, 2048))
            self.assertEqual((s.n_k, s.kv_heads), (s.n_q, s.heads))

    def test_the_other_grids(self):
        self.assertEqual(set(ct.parse(["--ladder"]).shapes),
                         {Shape(4, 16, 16, 4096, 4096, 128, False), Shape(4, 32, 32, 4096, 4096, 64, False)})
        self.assertLess(ct.parse(["--ladder"]).seconds, 60)
        self.assertEqual(ct.parse([]).seconds, math.inf)
        self.assertLess(set(ct.parse(["--grid", "short"]).shapes), set(ct.parse([]).shapes))

    def test_steps_of_decoding(self):
        grid = ct.parse(["--grid", "decoding"]).shapes
        self.assertEqual(len(set(grid)), 18)
        self.assertEqual({(s.n_q, s.causal) for s in grid}, {(1, False)})
        self.assertIn(Shape(16, 8, 8, 1, 8192, 128, False), grid)
        self.assertEqual(str(grid[0]), "d 64, N_q 1, N_k 8192, B 16, H 64/8")
        self.assertEqual(grid[0].elements(), 2 * 16 * 64 * (64 + 8 * 8192))
        merge = ct.parse(["--grid", "merge"]).shapes
        self.assertEqual((len(set(merge)), merge[:18]), (28, grid))
        self.assertEqual(str(merge[19]), "d 64 causal, N_q 16, N_k 8192, B 1, H 32/8")
        source = (ROOT / "common/operations/attention/operation.cpp").read_text()  # `ladder run` has five of them
        body = re.search(r" steps_of_decoding\(int head_dim\) \{(.*?)\}", source, re.DOTALL)[1]
        steps = re.findall(r"\((\d+), (\d+), (\d+), (\d+|1 << 20), head_dim\)", body)
        self.assertEqual(len(steps), 5)
        for of in steps:
            for d in (64, 128):
                self.assertIn(problems.step_of_decoding(*map(eval, of), d), grid)

    def test_flashinfer_is_asked_for_decoding_alone(self):
        with self.assertRaisesRegex(RuntimeError, "for decoding alone"):
            kernels.peer_run("flashinfer", HEAD)

    def test_more(self):
        more = ct.parse(["--more"]).shapes
        self.assertEqual(len(set(more)), 20)
        self.assertIn(Shape(4, 64, 8, 4096, 4096, 128, True), more)
        self.assertIn(Shape(4, 8, 8, 4096, 4096, 256, False), more)
        by_length = {(s.head_dim, s.causal, s.n_q): s for s in more if s.head_dim < 256 and s.kv_heads == s.heads}
        for (d, causal, n), s in by_length.items():
            if n in problems.NEIGHBOURS:  # the same but for the length
                self.assertEqual(ct.dataclasses.replace(s, n_q=problems.NEIGHBOURS[n], n_k=problems.NEIGHBOURS[n]),
                                 by_length[d, causal, problems.NEIGHBOURS[n]])
        self.assertEqual({n for _, _, n in by_length}, {1000, 1024, 4096, 4097})

    def test_more_is_of_the_highest_two_stages(self):
        stages = [{"stage": name, "dtypes": ["bf16"]} for name in ("11-a", "12-b", "13-c")]
        names = lambda *arguments: [stage["stage"] for stage in ct.chosen(stages, ct.parse(arguments))]
        self.assertEqual(names("--more"), ["12-b", "13-c"])
        self.assertEqual(names("--more", "--stages", "11"), ["11-a"])

    def test_more_and_the_grid_share_a_result_file(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "compare.json")
            with contextlib.redirect_stderr(io.StringIO()) as output, self.assertRaises(SystemExit):
                ct.parse(["--more", "--json", str(file)])
            self.assertIn("run the grid first", output.getvalue())
            write = lambda result, *arguments: ct.write_result(result, ct.parse([*arguments, "--json", str(file)]))
            read = lambda: json.loads(file.read_text())
            write({"rows": [1]})
            self.assertEqual(read(), {"rows": [1]})
            write({"rows": [2]}, "--more")
            self.assertEqual(read(), {"rows": [1], "more": {"rows": [2]}})
            write({"rows": [3]})
            self.assertEqual(read(), {"rows": [3], "more": {"rows": [2]}})

    def test_one_problem(self):
        self.assertEqual(ct.parse(["--n", "512"]).shapes, [Shape(32, 16, 16, 512, 512, 128, False)])
        self.assertEqual(ct.parse(["--d", "64", "--causal"]).shapes, [Shape(4, 32, 32, 4096, 4096, 64, True)])
        self.assertEqual(ct.parse(["--batch", "3", "--heads", "8", "--kv-heads", "2", "--n", "100000"]).shapes,
                         [Shape(3, 8, 2, 100000, 100000, 128, False)])

    def test_wrong_arguments_are_refused(self):
        for arguments, says in ((["--peers", "cudnn,nobody"], "no peer is called nobody"),
                                (["--heads", "8", "--kv-heads", "3"], "not a multiple"),
                                (["--more", "--backward"], "--more has no gradients"),
                                (["--n", "0"], "at least 1"), (["--rounds", "0"], "at least 1")):
            with contextlib.redirect_stderr(io.StringIO()) as output, self.assertRaises(SystemExit) as end:
                ct.parse(arguments)
            self.assertEqual(end.exception.code, 2)
            self.assertIn(says, output.getvalue())

    def test_peers_by_dtype(self):
        self.assertEqual(ct.parse([]).peers[:2], ["cudnn", "flash"])
        self.assertEqual(ct.parse(["--dtype", "f32"]).peers, ["efficient", "math"])
        self.assertEqual(ct.parse(["--dtype", "f32", "--peers", "math"]).peers, ["math"])
        self.assertEqual(ct.parse(["--peers", ""]).peers, [])
        self.assertEqual([kernels.peer_name("flash"), kernels.peer_name("cudnn")], [FLASH, CUDNN])
        self.assertEqual(kernels.peer_name("flash_attn"), "peer:flash_attn")
        self.assertIn("flash_attn.cute", ct.parse([]).peers)

    def test_a_folder_of_the_packages_name_is_no_package(self):
        with unittest.mock.patch.dict(sys.modules, {"flash_attn": types.ModuleType("flash_attn")}):
            with self.assertRaisesRegex(ImportError, "flash_attn has no flash_attn_func"):
                kernels.peer_run("flash_attn", None)

    def test_stages_by_dtype_or_by_name(self):
        stages = [{"stage": "03-a", "dtypes": ["f32"]}, {"stage": "04-b", "dtypes": ["bf16", "f16"]},
                  {"stage": "05-c", "dtypes": ["bf16"]}]
        names = lambda *arguments: [stage["stage"] for stage in ct.chosen(stages, ct.parse(arguments))]
        self.assertEqual(names(), ["04-b", "05-c"])
        self.assertEqual(names("--dtype", "f16"), ["04-b"])
        self.assertEqual(names("--stages", "05,03"), ["03-a", "05-c"])
        with self.assertRaisesRegex(SystemExit, "no stage of the library begins with '06'"):
            names("--stages", "04,06")

    def test_variants_by_their_whole_names(self):
        stages = [{"stage": "26-a", "dtypes": ["bf16"], "lse": True},
                  {"stage": "27-b", "dtypes": ["bf16"], "lse": True, "variants": [
                      {"variant": "last", "lse": False}, {"variant": "last, 3 parts", "lse": True}]}]
        names = lambda text: [stage["stage"] for stage in ct.chosen(stages, ct.parse(["--stages", text]))]
        self.assertEqual(names("27"), ["27-b"])
        self.assertEqual(names("27-b,27-b/last"), ["27-b", "27-b/last"])
        self.assertEqual(names("27-b/last"), ["27-b/last"])
        self.assertFalse(ct.chosen(stages, ct.parse(["--stages", "27-b/last"]))[0]["lse"])
        with self.assertRaisesRegex(SystemExit, "no stage of the library begins with '27-b/la'"):
            names("27-b/la")

    def test_operations_are_counted_as_the_papers_do(self):
        s = problems.shape(128, 4096, False)
        self.assertEqual(s.flops(), 4 * 4 * 16 * 4096 * 4096 * 128)
        self.assertEqual(problems.shape(128, 4096, True).flops(), s.flops() // 2)
        self.assertEqual(s.flops(backward=True), 2.5 * s.flops())

    def test_rows_to_check(self):
        self.assertEqual(problems.sampled_rows(2048), list(range(2048)))
        rows = problems.sampled_rows(5000)
        self.assertEqual(rows, sorted(set(rows)))
        self.assertEqual(rows, problems.sampled_rows(5000))
        self.assertNotEqual(rows, problems.sampled_rows(5000, seed=2))
        self.assertLessEqual({0, 63, 64, 127, 128, 4991, 4992, 4999}, set(rows))
        self.assertLess(rows[-1], 5000)
        self.assertGreater(len(rows), 500)


class Numbers(unittest.TestCase):
    def test_each_rule_can_fail_and_nan_fails_each(self):
        self.assertEqual(checks.why_wrong("bf16", 5e-3, 0.1, 0.1, 5e-3), "")
        self.assertEqual(checks.why_wrong("f32", 1.1e-5, 0.0, 0.1), "error 1.10e-05, allowed 1.00e-05")
        self.assertEqual(checks.why_wrong("f16", 0.0, 0.2, 0.1), "worst row 2.00e-01, allowed 1.00e-01")
        self.assertEqual(checks.why_wrong("f16", 0.0, 0.0, 0.1, 2e-3), "LSE error 2.00e-03, allowed 1.00e-03")
        for numbers in ((math.nan, 0, 1, 0), (0, math.nan, 1, 0), (0, 0, math.nan, 0), (0, 0, 1, math.nan)):
            self.assertNotEqual(checks.why_wrong("bf16", *numbers), "")

    def test_the_rules_are_those_of_the_harness(self):
        source = (ROOT / "common/harness/dtype.cpp").read_text()
        bounds = dict(re.findall(r"case DType::(\w+): return (\d+e-\d+);", source))
        self.assertEqual({dtype: float(bound) for dtype, bound in bounds.items()}, checks.ALLOWED_ERROR)
        source = (ROOT / "common/operations/attention_backward/comparison.cpp").read_text()
        bounds = dict(re.findall(r"case DType::(\w+): return (\d+e-\d+);", source))
        self.assertEqual({dtype: float(bound) for dtype, bound in bounds.items()}, checks.ALLOWED_GRADIENT_ERROR)
        source = (ROOT / "common/harness/dtype.cpp").read_text()
        epsilon = re.search(r"f32 \? 0x1p-(\d+) : dtype == DType::f16 \? 0x1p-(\d+) : 0x1p-(\d+);", source)
        self.assertEqual([2.0**-int(power) for power in epsilon.groups()],
                         [checks.EPSILON[dtype] for dtype in ("f32", "f16", "bf16")])

    def test_short_kernels_are_launched_often_and_long_ones_once(self):
        self.assertEqual(ct.launches_in_a_row(100), 1)
        self.assertEqual(ct.launches_in_a_row(ct.TIMED_MS / 10), 10)
        self.assertEqual(ct.launches_in_a_row(1e-9), ct.MOST_LAUNCHES)

    def test_all_take_turns_in_random_order(self):
        seen = []
        results = ct.interleave(["a", "b", "c"], lambda name: seen.append(name) or len(seen), 20)
        rounds = [tuple(seen[i:i + 3]) for i in range(0, 60, 3)]
        self.assertEqual(len(seen), 60)
        self.assertTrue(all(sorted(r) == ["a", "b", "c"] for r in rounds))
        self.assertGreater(len(set(rounds)), 3)
        self.assertEqual(results["b"], [i + 1 for i, name in enumerate(seen) if name == "b"])

    def test_the_time_limit_leaves_the_least_number_of_rounds(self):
        rounds = lambda stop_at, clock: len(ct.interleave(["a"], lambda name: 0, 20, stop_at, clock=clock)["a"])
        self.assertEqual(rounds(-1, lambda: 0), ct.LEAST_ROUNDS)
        now = iter(range(100))
        self.assertEqual(rounds(5, lambda: next(now)), ct.LEAST_ROUNDS + 6)

    def test_ratios_are_of_the_same_round(self):
        self.assertEqual(ct.speed_ratio([1, 2, 10], [2, 4, 30]), 2)
        self.assertEqual(ct.speed_ratio([1, 10, 10], [3, 10, 30]), 3)  # the medians' ratio would be 1
        self.assertIsNone(ct.speed_ratio([1], None))


class Rows(unittest.TestCase):
    checked = {FLASH: {"error": 2e-3, "worst_row": 1e-2}, CUDNN: {"error": 2e-3, "worst_row": 1e-2},
               "04-b": {"error": 2.1e-3, "worst_row": 1e-2}, "06-d": {"error": 4e-3, "worst_row": 1e-2},
               "07-e": {"error": 2e-3, "worst_row": 1e-2},
               "05-c": {"error": None, "worst_row": None, "wrong": "error nan"}}
    times = {FLASH: [2.0, 2.0, 2.0], CUDNN: [1.0, 1.0, 1.0], "04-b": [4.0, 5.0, 3.0], "06-d": [1.0, 1.0, 2.0],
             "07-e": [0.5, 0.5, 0.5],
             ct.MATMUL: [2 * ct.MATMUL_N**3 / 1e12] * 3,  # 1000 TFLOP/s
             ct.COPY: [2 * ct.COPY_BYTES / 1e9] * 3}      # 1000 GB/s

    def rows(self):
        return ct.result_rows(HEAD, "bf16", self.checked, self.times, 7)

    def test_rows(self):
        rows = self.rows()
        self.assertEqual([row["stage"] for row in rows], ["04-b", "05-c", "06-d", "07-e", CUDNN, FLASH])
        b, wrong, d, e, cudnn, flash = rows
        self.assertEqual((b["ms"], b["ms_min"], b["ms_max"], b["samples"], b["launches"]), (4.0, 3.0, 5.0, 3, 7))
        self.assertAlmostEqual(b["tflops"], HEAD.flops() / 4e-3 / 1e12)
        self.assertAlmostEqual(b["percent_of_matmul"], b["tflops"] / 10)
        self.assertAlmostEqual(b["gb_per_s"], 2 * 4 * 1024 * 128 / 4e-3 / 1e9)
        self.assertAlmostEqual(b["percent_of_copy"], b["gb_per_s"] / 10)
        self.assertEqual((b["ratio_flash"], b["ratio_cudnn"], b["ratio_below"]), (0.5, 0.25, None))
        self.assertEqual((d["ratio_flash"], d["ratio_cudnn"], d["ratio_below"]), (2.0, 1.0, 4.0))
        self.assertEqual(e["ratio_below"], 2.0)
        self.assertEqual((cudnn["ratio_flash"], cudnn["ratio_below"], flash["ratio_flash"]), (2.0, None, 1.0))
        self.assertAlmostEqual(b["error_ratio_flash"], 1.05)
        self.assertEqual((b["error"], b["worst_row"], b["dtype"]), (2.1e-3, 1e-2, "bf16"))
        self.assertEqual((b["origin"], flash["origin"]), ("solution", "peer"))
        self.assertEqual(b["shape"], {"batch": 1, "heads": 1, "kv_heads": 1, "n_q": 1024, "n_k": 1024, "head_dim": 128,
                                      "causal": False})
        self.assertEqual(wrong["wrong"], "error nan")
        self.assertNotIn("ms", wrong)
        self.assertEqual(json.loads(json.dumps(rows, allow_nan=False)), rows)

    def test_without_flash_there_is_no_ratio_to_it(self):
        rows = ct.result_rows(HEAD, "bf16", {"04-b": RIGHT}, {"04-b": [1.0], ct.MATMUL: [1.0], ct.COPY: [1.0]}, 1)
        self.assertEqual((rows[0]["ratio_flash"], rows[0]["error_ratio_flash"]), (None, None))

    def test_what_is_wrong_or_inaccurate_fails_but_a_peer_does_not(self):
        rows = self.rows()
        failed = list(ct.failures(rows))
        self.assertEqual(len(failed), 2)
        self.assertTrue(failed[0].startswith("05-c, d 128, N 1024, B 1, H 1: error nan"))
        self.assertIn("06-d", failed[1])
        self.assertIn("2.00x", failed[1])
        rows[4]["wrong"], rows[4]["error_ratio_flash"] = "error", 3
        self.assertEqual(list(ct.failures(rows)), failed)

    def test_geometric_means_are_over_the_lengths(self):
        rows = []
        for n, ms in ((512, [1.0]), (1024, [4.0])):
            s = problems.shape(128, n, True)
            rows += ct.result_rows(s, "bf16", {"04-b": RIGHT, FLASH: RIGHT},
                                   {"04-b": ms, FLASH: [2.0], ct.MATMUL: [1.0], ct.COPY: [1.0]}, 1)
        rows += ct.result_rows(HEAD, "bf16", {"04-b": RIGHT}, {}, 0)  # not timed
        means = {m["stage"]: m for m in ct.geometric_means(rows)}
        self.assertEqual(set(means), {"04-b", FLASH})
        mean = means["04-b"]
        self.assertEqual((mean["head_dim"], mean["causal"], mean["problems"]), (128, True, 2))
        self.assertAlmostEqual(mean["ratio_flash"], 1.0)
        self.assertAlmostEqual(mean["tflops"], math.sqrt(rows[0]["tflops"] * rows[2]["tflops"]))
        self.assertIsNone(mean["ratio_cudnn"])

    def test_tables(self):
        lines = ct.rows_table(self.rows()).splitlines()
        self.assertEqual(len({len(line) for line in lines}), 1)
        self.assertRegex(lines[1], r"^04-b +4\.000 +3\.000 +5\.000 .* 0\.500 +0\.250 ")
        self.assertIn("WRONG", lines[2])
        self.assertNotIn("WRONG", lines[1])
        self.assertIn("06-d", ct.means_table(ct.geometric_means(self.rows())))


    def test_rows_of_gradients_count_their_operations(self):
        times = {"17-b": [4.0], ct.MATMUL: [1.0], ct.COPY: [1.0]}
        forward, backward = (ct.result_rows(HEAD, "f32", {"17-b": RIGHT}, times, 1, way)[0] for way in (False, True))
        self.assertAlmostEqual(backward["tflops"], 2.5 * forward["tflops"])
        self.assertAlmostEqual(backward["percent_of_matmul"], 2.5 * forward["percent_of_matmul"])


@unittest.skipIf(kernels.torch is None, "no PyTorch")
class Gradients(unittest.TestCase):
    """What needs PyTorch, but no GPU."""
    SHAPE = Shape(2, 4, 2, 20, 20, 64, True)

    def inputs(self, dtype="float32"):
        torch = kernels.torch
        generator = torch.Generator().manual_seed(1)
        q, k, v, dO = (torch.randn(2, heads, 20, 64, generator=generator).to(getattr(torch, dtype)) for heads in (4, 2, 2, 4))
        O, lse = checks.attention_rows(q, k, v, range(20), True, torch.float32, torch.float32)
        return q, k, v, O.view(q.shape).to(q.dtype), lse.view(q.shape[:3]), dO

    def test_a_right_one_passes_and_a_wrong_one_is_named(self):
        torch = kernels.torch
        for dtype, name in (("f32", "float32"), ("bf16", "bfloat16")):
            inputs = self.inputs(name)
            check = checks.GradientCheck(inputs, True, dtype)
            q, k, v, _, _, dO = inputs
            right = checks.gradients_of(q, k, v, dO, True, torch.float32, q.dtype)
            verdict = check.verdict(lambda *_: right)
            self.assertNotIn("wrong", verdict)
            self.assertLess(0, verdict["error"])
            for i, gradient in enumerate(("dQ", "dK", "dV")):
                wrong = [x.clone() for x in right]
                wrong[i] *= 1.02
                self.assertRegex(check.verdict(lambda *_: wrong)["wrong"], f"^{gradient}: error 2.0.e-02")
                wrong = [x.clone() for x in right]
                if dtype == "f32":  # so little that the norm of all is right
                    wrong[i][1, 1, 7] += 4e-6 * wrong[i].norm(dim=-1).max() / 8
                    self.assertRegex(check.verdict(lambda *_: wrong)["wrong"], f"^{gradient}: worst row")
                wrong[i][1, 1, 7, 0] = math.nan
                verdict = check.verdict(lambda *_: wrong)
                self.assertRegex(verdict["wrong"], f"^{gradient}: error nan")
                self.assertEqual((verdict["error"], verdict["worst_row"]), (None, None))

    def test_ours_gets_gradients_full_of_nan(self):
        def run(*inputs, gradients):
            return gradients
        self.assertRegex(checks.GradientCheck(self.inputs(), True, "f32").verdict(run, writes_to_ours=True)["wrong"],
                         "^dQ: error nan.*; dK: error nan.*; dV: error nan")

    def test_a_peers_way_back_is_that_of_autograd_and_can_be_gone_again(self):
        torch, stream = kernels.torch, unittest.mock.MagicMock()
        inputs = [self.inputs(), tuple(2 * x for x in self.inputs())]
        with unittest.mock.patch.object(kernels, "capture_stream", lambda: stream), unittest.mock.patch.object(
                torch.cuda, "current_stream", lambda: stream), unittest.mock.patch.object(
                torch.cuda, "stream", lambda _: contextlib.nullcontext()):
            run = kernels.peer_backward_run("math", self.SHAPE, inputs)
        for of in (inputs[0], inputs[1], inputs[0]):
            self.assertNotIn("wrong", checks.GradientCheck(of, True, "f32").verdict(run))


@unittest.skipIf(kernels.torch is None, "no PyTorch")
class TrainingSteps(unittest.TestCase):
    """On the CPU, with PyTorch's math for an attention."""
    SHAPE = Shape(2, 3, 3, 40, 40, 64, True)

    def setUp(self):
        torch, generator = kernels.torch, kernels.torch.Generator().manual_seed(3)
        self.inputs = [tuple(torch.randn(2, 3, 40, 64, generator=generator).bfloat16() for _ in range(4))
                       for _ in range(2)]

    def attention(self, q, k, v, causal=True):
        return kernels.scaled_dot_product_attention(*(x.float() for x in (q, k, v)), is_causal=causal).to(q.dtype)

    def checked(self, makers):
        return ts.checked_steps(makers, ts.StepCheck(self.inputs[0], True))

    def library(self, O_off=1.0, dV_off=1.0):
        """Stands for the C interface: what makes runs of stages by their names, as kernels.py does."""
        hidden = kernels.torch.ones(40, 40).triu(1).bool()
        scores = lambda q, k: (q.float() @ k.float().mT / 8).masked_fill(hidden, -math.inf)

        def stage_run(library, stage, shape, dtype):
            def run(q, k, v, O, lse):
                lse.copy_(scores(q, k).logsumexp(-1))
                return O.copy_(O_off * (scores(q, k).softmax(-1) @ v.float()))
            return run

        def stage_backward_run(library, stage, shape, dtype):
            if stage == "missing":
                raise RuntimeError("no stage is called missing\nthere are others")

            def run(q, k, v, O, lse, dO, gradients):
                P = (scores(q, k) - lse[..., None]).exp()
                dS = P * (dO.float() @ v.float().mT - (dO.float() * O.float()).sum(-1, keepdim=True))
                found = dS @ k.float() / 8, dS.mT @ q.float() / 8, dV_off * P.mT @ dO.float()
                for of, gradient in zip(gradients, found):
                    of.copy_(gradient)
                return gradients
            return run
        return unittest.mock.patch.multiple(ts, stage_run=stage_run, stage_backward_run=stage_backward_run)

    def test_the_problems_are_those_of_the_models(self):
        self.assertEqual([str(shape) for _, shape in ts.PROBLEMS],
                         ["d 64, N 512, B 32, H 12", "d 128 causal, N 2048, B 8, H 16",
                          "d 128 causal, N 8192, B 2, H 16"])
        self.assertEqual({shape.heads * shape.head_dim for _, shape in ts.PROBLEMS}, {768, 2048})  # the models' widths

    def test_a_step_of_autograd_is_both_passes_of_the_inputs_that_it_gets(self):
        torch, step = kernels.torch, ts.autograd_step(self.attention)
        for inputs in (*self.inputs, self.inputs[0]):
            q, k, v, dO = inputs
            self.assertFalse(step.forward(*inputs).requires_grad)
            self.assertTrue(torch.equal(step.forward(*inputs), self.attention(q, k, v)))
            self.assertNotIn("wrong", ts.StepCheck(inputs, True).verdict(step))
            self.assertFalse(any(x.requires_grad or x.grad is not None for x in inputs))

    def test_a_step_of_two_stages_finds_gradients_with_what_its_forward_pass_has_left(self):
        with self.library():
            step = ts.stages_step(None, ts.STAGES[0], self.SHAPE, self.inputs[0])
        for inputs in (*self.inputs, self.inputs[0]):
            self.assertNotIn("wrong", ts.StepCheck(inputs, True).verdict(step))
        first, again = step.step(*self.inputs[0]), step.step(*self.inputs[1])
        self.assertEqual([x.data_ptr() for x in first], [x.data_ptr() for x in again])  # allocated once

    def test_wrong_ones_are_not_timed_and_ours_fail(self):
        with self.library(O_off=1.02):
            right, checked, skipped = self.checked(
                {"22-a": lambda: ts.stages_step(None, "22-a", self.SHAPE, self.inputs[0]),
                 "peer:a": lambda: ts.autograd_step(lambda q, k, v: self.attention(q, k, v, False)),
                 "peer:b": lambda: ts.autograd_step(self.attention)})
        self.assertEqual((list(right), skipped), (["peer:b"], {}))
        self.assertRegex(checked["22-a"]["wrong"], r"^O: error 2\.0.e-02.*; dQ: error")
        with self.library(dV_off=1.02):
            _, of_dV, _ = self.checked({"22-a": lambda: ts.stages_step(None, "22-a", self.SHAPE, self.inputs[0])})
        self.assertRegex(of_dV["22-a"]["wrong"], r"^dV: error 2\.0.e-02")
        times = {("peer:b", passes): [1.0] for passes in ts.PASSES}
        rows = ts.result_rows("a model", self.SHAPE, checked, times, 1, "")
        self.assertEqual(ts.failures(rows), [f"22-a, a model: {checked['22-a']['wrong']}"])  # and not the peer

    def test_what_is_missing_or_has_no_way_back_is_skipped_but_ours_that_breaks_down_is_wrong(self):
        def breaks_down(q, k, v):
            raise RuntimeError("an illegal memory access\nand where")
        with self.library(), unittest.mock.patch.dict(sys.modules, {"flashladder": None}):
            right, checked, skipped = self.checked(
                {"missing": lambda: ts.stages_step(None, "missing", self.SHAPE, self.inputs[0]),
                 ts.PACKAGE: lambda: ts.package_step(self.SHAPE),
                 "22-a": lambda: ts.autograd_step(breaks_down), "peer:a": lambda: ts.autograd_step(breaks_down),
                 "peer:b": lambda: ts.autograd_step(lambda q, k, v: self.attention(q, k, v).detach())})
        self.assertEqual((right, list(checked)), ({}, ["22-a"]))
        self.assertEqual(checked["22-a"], {"error": None, "gradient_error": None, "wrong": "an illegal memory access"})
        self.assertEqual(list(skipped), ["missing", ts.PACKAGE, "peer:a", "peer:b"])
        self.assertEqual(skipped["missing"], "no stage is called missing")
        self.assertIn("does not require grad", skipped["peer:b"])

    def test_the_package_is_asked_for_this_problem(self):
        package = types.SimpleNamespace(attention=self.attention)
        with unittest.mock.patch.dict(sys.modules, {"flashladder": package}):
            for causal in (True, False):
                step = ts.package_step(ct.dataclasses.replace(self.SHAPE, causal=causal))
                self.assertNotIn("wrong", ts.StepCheck(self.inputs[0], causal).verdict(step))

    def test_rows(self):
        checked = {name: {"error": 2e-3, "gradient_error": 3e-3} for name in (CUDNN, FLASH, ts.PACKAGE, "22-a/b", "22-a")}
        checked["peer:z"] = {"error": None, "gradient_error": None, "wrong": "O"}
        times = {("22-a", "forward"): [2.0, 2.0, 8.0], ("22-a", "step"): [4.0, 4.0, 4.0],
                 (CUDNN, "forward"): [3.0, 3.0, 4.0], (CUDNN, "step"): [9.0, 9.0, 9.0],
                 (FLASH, "forward"): [4.0, 5.0, 5.0], (FLASH, "step"): [6.0, 6.0, 8.0],
                 ct.MATMUL: [1.0], ct.COPY: [1.0]}
        rows = ts.result_rows("BERT-base", self.SHAPE, checked, times, 5, "CUDA graph")
        self.assertEqual([row["stage"] for row in rows], ["22-a", "22-a/b", ts.PACKAGE, CUDNN, FLASH, "peer:z"])
        ours, cudnn, flash = rows[0], rows[3], rows[4]
        self.assertEqual([ours["forward"][of] for of in ("ms", "ms_min", "ms_max", "samples", "launches")],
                         [2.0, 2.0, 8.0, 3, 5])
        # of the peer that is the fastest in these passes, and of the same round
        self.assertEqual((ours["forward"]["ratio_fastest"], ours["step"]["ratio_fastest"]), (1.5, 1.5))
        self.assertEqual((cudnn["forward"]["ratio_fastest"], flash["step"]["ratio_fastest"]), (1.0, 1.0))
        self.assertAlmostEqual(ours["forward"]["tflops"], self.SHAPE.flops() / 2e9)
        self.assertAlmostEqual(ours["step"]["tflops"], 3.5 * self.SHAPE.flops() / 4e9)
        self.assertEqual((ours["shape"]["model"], ours["origin"], rows[2]["origin"], cudnn["origin"]),
                         ("BERT-base", "solution", "solution", "peer"))
        self.assertFalse(set(ts.PASSES) & set(rows[1]))
        self.assertEqual(json.loads(json.dumps(rows, allow_nan=False)), rows)
        lines = ts.rows_table(rows).splitlines()
        self.assertRegex(lines[1], r"^22-a +2\.000 +4\.000 +4\.000 +4\.000 .* 1\.500 +2\.0e-03 +3\.0e-03$")
        self.assertEqual([("WRONG" in line) for line in lines[1:]], [False, True, True, False, False, True])
        without_peers = ts.result_rows("", self.SHAPE, {"22-a": {}}, times, 5, "")
        self.assertIsNone(without_peers[0]["step"]["ratio_fastest"])

    def test_rounds_are_at_least_1(self):
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            ts.parse(["--rounds", "0"])
        self.assertIn("--rounds is at least 1", said.getvalue())


class Card(unittest.TestCase):
    ANSWER = "1410 MHz, 1980 MHz, 2619 MHz, 698.12 W, 700.00 W, 61, 0x0000000000000024, 580.1\n"

    def test_state(self):
        state = card.card_state(self.ANSWER)
        self.assertEqual(state["slowed_by"], ["power cap", "temperature (software)"])
        self.assertEqual((state["clocks.sm"], state["driver_version"]), ("1410 MHz", "580.1"))
        self.assertEqual(card.card_state(""), {})
        self.assertEqual(card.card_state("Field \"clocks\" is not a valid field\n"), {})
        self.assertEqual(card.card_state(self.ANSWER.replace("0x0000000000000024", "[N/A]"))["slowed_by"], [])

    def test_range_of_clocks(self):
        other = self.ANSWER.replace("1410", "975").replace("24,", "00,")
        clocks = card.clocks_of([card.card_state(self.ANSWER), {}, card.card_state(other)])
        self.assertEqual([clocks[what] for what in ("sm", "sm_max", "power")],
                         ["975 MHz to 1410 MHz", "1980 MHz", "698.12 W"])
        self.assertEqual(clocks["slowed_by"], ["power cap", "temperature (software)"])
        self.assertEqual(card.clocks_of([{}]), {})

    def test_what_a_card_does_not_say_is_unknown(self):
        silent = self.ANSWER.replace("698.12 W, 700.00 W", "[N/A], [N/A]").replace("61,", "[Not Supported],")
        clocks = card.clocks_of([card.card_state(silent)])
        self.assertEqual([clocks[what] for what in ("sm", "power", "power_limit", "temperature")],
                         ["1410 MHz", "unknown", "unknown", "unknown"])
        clocks = card.clocks_of([card.card_state(silent), card.card_state(self.ANSWER)])
        self.assertEqual([clocks[what] for what in ("power", "temperature")], ["698.12 W", "61 C"])


class Sustained(unittest.TestCase):
    def test_samples_of_the_card(self):
        self.assertEqual(card.card_sample("1410, 698.12\n"), (1410, 698.12))
        for line in ("", "\n", "1410, [N/A]", "Field is not valid", "1, 2, 3"):
            self.assertIsNone(card.card_sample(line))

    def test_the_second_half_is_what_counts(self):
        samples = [(t, 2000 - t, 10 * t) for t in range(11)]
        self.assertEqual(card.samples_between(samples, 2, 8), {"sm_mhz": 1993.5, "power_w": 65, "card_samples": 4})
        self.assertEqual(card.samples_between(samples, 20, 30), {"sm_mhz": None, "power_w": None, "card_samples": 0})

    def test_rows(self):
        none = {"sm_mhz": None, "power_w": None, "card_samples": 0}
        row = ct.sustained_row("04-b", HEAD, "bf16", [(1.0, 2.0, {"sm_mhz": 1500, "power_w": 700, "card_samples": 9}),
                                                      (3.0, 4.0, none), (2.0, 3.0, none)])
        self.assertEqual((row["stage"], row["ms"], row["sm_mhz"], row["card_samples"]), ("04-b", 3.0, 1500, 0))
        self.assertAlmostEqual(row["tflops"], HEAD.flops() / 3e9)
        self.assertAlmostEqual(row["short_tflops"], HEAD.flops() / 2e9)
        unknown = ct.sustained_row("05-c", HEAD, "bf16", [(1.0, 2.0, none)] * 3)
        self.assertIsNone(unknown["sm_mhz"])
        self.assertIn("unknown", ct.sustained_table([row, unknown]).splitlines()[2])

    def test_the_card_is_asked_while_it_works(self):
        fake = types.SimpleNamespace(cuda=types.SimpleNamespace(
            get_device_properties=lambda _: types.SimpleNamespace(uuid="7")))
        with tempfile.TemporaryDirectory() as folder:
            tool = pathlib.Path(folder, "nvidia-smi")
            tool.write_text("#!/bin/sh\nfor i in 1 2 3; do echo 1410, 698.12; sleep 0.05; done; exec sleep 60\n")
            tool.chmod(0o755)
            with unittest.mock.patch.object(card, "torch", fake), unittest.mock.patch.dict(
                    os.environ, {"PATH": f"{folder}:{os.environ['PATH']}"}), card.CardSampler() as sampler:
                start = ct.time.monotonic()
                while len(sampler.samples) < 3 and ct.time.monotonic() < start + 10:
                    ct.time.sleep(0.01)
            self.assertEqual([sample[1:] for sample in sampler.samples], [(1410, 698.12)] * 3)
            self.assertIsNotNone(sampler.process.returncode)
            with unittest.mock.patch.object(card, "torch", fake), unittest.mock.patch.dict(
                    os.environ, {"PATH": "/nowhere"}), card.CardSampler() as sampler:  # there is none
                self.assertEqual(sampler.samples, [])


class Lists(unittest.TestCase):
    def test_patterns_are_those_of_the_operation(self):
        self.assertEqual([str(p) for p in cl.PATTERNS], ["5%", "10%", "25%", "50%", "100%", "window 4", "butterfly"])
        mask = cl.Pattern(butterfly=True).mask(6, False)
        self.assertEqual(cl.lists_of(mask)[1][:cl.lists_of(mask)[0][1]], [0, 1, 2, 4])
        mask = cl.Pattern(window=1).mask(3, True)
        self.assertEqual(cl.lists_of(mask), ([0, 1, 3, 5], [0, 0, 1, 1, 2]))
        self.assertEqual(cl.scores(mask, True), 128 * 128 * (3 / 2 + 2))
        self.assertEqual(cl.scores(cl.Pattern(density=100).mask(4, False), False), 512 * 512)
        self.assertLess(sum(map(sum, cl.Pattern(density=10).mask(64, False))), 64 * 64 * 0.16)

    def test_lengths_that_no_block_divides_are_refused(self):
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            cl.parse(["--n", "1000"])
        self.assertIn("--n is 1000, but must be a multiple of 128", said.getvalue())

    def test_rung_14_has_the_variants_with_the_same_tiles(self):
        known = tune.configurations()
        for d, name in cl.SAME_TILES.items():
            configuration = known[name.removeprefix(cl.DENSE + "/")]
            self.assertEqual((configuration.d, 64 * configuration.consumers, configuration.B_c), (d, cl.BLOCK, cl.BLOCK))


class Only(unittest.TestCase):
    def test_some_problems_by_how_their_names_begin(self):
        self.assertEqual([str(p) for p in cl.parse(["--only", "100%", "b"]).patterns], ["100%", "butterfly"])
        self.assertEqual(cl.parse([]).patterns, cl.PATTERNS)
        all_of_them = cv.parse([]).problems
        self.assertEqual(len(all_of_them), 26)
        self.assertEqual(sum(len(lengths) == 8 for *_, lengths in all_of_them.values()), 14)
        some = cv.parse(["--only", "d 192/192 causal", "d 256"]).problems
        self.assertEqual(list(some), ["d 192/192 causal, 8 up to 2048", "d 256/256, 8 up to 2048", "d 256/256 causal, 8 up to 2048"])
        self.assertEqual([of[:3] for of in some.values()], [(192, 192, True), (256, 256, False), (256, 256, True)])

    def test_what_cannot_be_is_refused(self):
        for tool in cl, cv:
            for arguments, says in ((["--only", "nobody"], "no problem begins with 'nobody'"),
                                    (["--only", "", "--json", "/nowhere/a.json"], "run all problems first")):
                with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
                    tool.parse(arguments)
                self.assertIn(says, said.getvalue())

    def test_some_problems_are_written_beside_those_of_the_whole_run_which_replaces_both(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "varlen.json")
            for result, more, found in (({"rows": [1]}, None, {"rows": [1]}),
                                        ({"rows": [2]}, ["d 256"], {"rows": [1], "more": {"rows": [2]}}),
                                        ({"rows": [3]}, ["d 256"], {"rows": [1], "more": {"rows": [3]}}),
                                        ({"rows": [4]}, None, {"rows": [4]})):
                ct.write_rows(result, file, more)
                self.assertEqual(json.loads(file.read_text()), found)


class Interface(unittest.TestCase):
    def test_the_structure_is_that_of_the_header(self):
        header = (ROOT / "common/interface/flashladder.h").read_text()
        without_comments = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
        for name, structure in (("FlashLadderForward", kernels.Forward), ("FlashLadderBackward", kernels.Backward),
                                ("FlashLadderBlockSparse", kernels.BlockSparse), ("FlashLadderPaged", kernels.Paged), ("FlashLadderVarlen", kernels.Varlen)):
            body = re.search(r"struct %s \{(.*?)\}" % name, without_comments, re.DOTALL)[1]
            self.assertEqual(structure._fields_, self.fields_of(body))

    def fields_of(self, body):
        kinds = {"int": ctypes.c_int, "long long": ctypes.c_longlong, "float": ctypes.c_float,
                 "const char*": ctypes.c_char_p}
        fields = []
        for declaration in filter(None, map(str.strip, body.split(";"))):
            kind, names = re.match(r"((?:const |long )?\w+\*?) (.*)", declaration).groups()
            for name, count in re.findall(r"(\w+)(?:\[(\d+)\])?", names):
                field = kinds.get(kind, ctypes.c_void_p)
                fields.append((name, field * int(count) if count else field))
        return fields

    def test_a_stage_gets_the_strides_of_the_tensors(self):
        class Tensor:
            def __init__(self, address, *strides):
                self.data_ptr, self.stride = lambda: address, lambda: strides

        class Library:
            scratch_bytes = lambda self, problem: 0
            def call(self, function, problem):
                self.function = function
                self.seen = [getattr(problem, name) for name in "QKVO"], [
                    tuple(getattr(problem, name + "_strides")) for name in "QKVO"]
        stream = types.SimpleNamespace(cuda_stream=0)
        fake = types.SimpleNamespace(full=lambda *_, **__: Tensor(5), uint8=None,
                                     cuda=types.SimpleNamespace(current_stream=lambda: stream))
        library = Library()
        with unittest.mock.patch.object(kernels, "torch", fake):
            run = kernels.stage_run(library, "08-a", HEAD, "bf16")
            run(Tensor(1, 9, 8, 7, 1), Tensor(2, 6, 5, 4, 1), Tensor(3, 3, 2, 1, 1), Tensor(4, 12, 11, 10, 1))
        self.assertEqual(library.seen, ([1, 2, 3, 4], [(9, 8, 7), (6, 5, 4), (3, 2, 1), (12, 11, 10)]))

    def test_a_stage_of_the_way_back_gets_all_tensors(self):
        class Tensor:
            def __init__(self, address):
                self.data_ptr, self.stride = lambda: address, lambda: (10 * address, address, 3, 1)

        class Library:
            scratch_bytes = lambda self, problem: 0
            def backward(self, problem):
                self.seen = {name: (getattr(problem, name), tuple(getattr(problem, name + "_strides")))
                             for name in kernels.GRADIENT_TENSORS}
                self.lse = problem.lse
        fake = types.SimpleNamespace(full=lambda *_, **__: Tensor(99), uint8=None, cuda=types.SimpleNamespace(
            current_stream=lambda: types.SimpleNamespace(cuda_stream=0)))
        library = Library()
        with unittest.mock.patch.object(kernels, "torch", fake):
            run = kernels.stage_backward_run(library, "17-a", HEAD, "f32")
            run(*map(Tensor, (1, 2, 3, 4, 9, 5)), gradients=tuple(map(Tensor, (6, 7, 8))))
        self.assertEqual(library.seen, {name: (i, (10 * i, i, 3)) for i, name in enumerate(kernels.GRADIENT_TENSORS, 1)})
        self.assertEqual(library.lse, 9)

    def run_with(self, modules, tool, *arguments, root=ROOT):
        """The tool of the project at `root` where `modules`, {name: source}, are what is installed."""
        with tempfile.TemporaryDirectory() as folder:
            for name, source in modules.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(source)
            return subprocess.run([sys.executable, "-B", root / "tools/measure" / tool, *arguments],
                                  capture_output=True, text=True, env=os.environ | {"PYTHONPATH": folder})

    def test_says_what_is_missing_and_ends_with_1(self):
        torch = {"torch/__init__.py": "class cuda:\n    is_available = lambda: {}\n", "torch/nn/__init__.py": "",
                 "torch/nn/attention.py": "SDPBackend = sdpa_kernel = None",
                 "torch/nn/functional.py": "scaled_dot_product_attention = None"}
        with_gpu = torch | {"torch/__init__.py": torch["torch/__init__.py"].format(True)}
        without_gpu = torch | {"torch/__init__.py": torch["torch/__init__.py"].format(False)}
        tools = ["compare_torch", "tune", "template_tables", "block_orders", "variant_times", "pipes", "training_step"]
        for tool in (f"{name}.py" for name in tools):
            for modules, says in (({"torch/__init__.py": "raise ImportError"}, "needs PyTorch"),
                                  (without_gpu, "needs an NVIDIA GPU"), (with_gpu, "--target flashladder")):
                result = self.run_with(modules, tool, "--library", "/nowhere/libflashladder.so")
                self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
                self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
                self.assertTrue(result.stderr.startswith(f"{tool} needs "), result.stderr)
                self.assertIn(says, result.stderr)
            self.assertIn("(/nowhere/libflashladder.so: ", result.stderr)
            with tempfile.TemporaryDirectory() as project:  # in which nothing is built; the tool is called from elsewhere
                for part in ("tools", "common/operations"):
                    shutil.copytree(ROOT / part, pathlib.Path(project, part))
                result = self.run_with(with_gpu, tool, root=pathlib.Path(project))
                self.assertIn(f"({pathlib.Path(project).resolve()}/build/gpu/lib/libflashladder.so: ", result.stderr)


if __name__ == "__main__":
    unittest.main()
