#!/usr/bin/env python3
"""What tools/pictures/plots.py draws from result files, what it says of incomplete ones, and that the documents show it
all."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLOTS = ROOT / "tools/pictures/plots.py"
PICTURES = ROOT / "docs/pictures"
sys.path.insert(0, str(PLOTS.parent))
try:
    import plots
    import measured
    import results
except SystemExit:  # it has said what is missing
    plots = None

RUNGS = ["00-plain", "01-flash", "02-tiled", "04-mma", "09-wgmma"]
SPEEDS = dict(zip(RUNGS, (0.0625, 1.5, 20, 70, 400)))
WHERE = {"gpu": "A card", "commit": "c0ffee", "date": "2030-01-02"}


def shape(d, n, causal=False, heads=1):
    return {"head_dim": d, "n_q": n, "causal": causal, "heads": heads}


def ladder():
    return {**WHERE, "rows": [{"stage": stage, "set": "grid", "shape": shape(d, 4096), "tflops": speed * d / 64,
                               "error": 1e-6, "worst_row": 1e-5} for stage, speed in SPEEDS.items() for d in (64, 128)]}


def compare():
    speeds = {"04-mma": 70, "09-wgmma": 400, "peer:torch-cudnn": 300, "peer:torch-flash": 399,
              "peer:flash_attn_interface": 401, "peer:flash_attn.cute": 402}
    return {**WHERE, "torch": "9.8.7", "cudnn": "6.5.4",
            "rows": [{"stage": stage, "shape": shape(d, n, causal), "tflops": speed + n / 100, "error": 2e-3,
                      "worst_row": 3e-3} for stage, speed in speeds.items() for d in (64, 128) for n in (1024, 4096)
                     for causal in (False, True)]}


def counts():
    def row(stage, d, n, shared=227 * 1024):
        return {"stage": stage, "dtype": "f32" if stage < "04" else "bf16", "shape": shape(d, n),
                "shared_bytes": shared,
                "counts": {"requested_bytes": 20 * n * n, "distinct_bytes": 16 * n * d,
                           "peak_scratch_bytes": {"00": 4 * n * n, "01": 8 * n, "02": 8 * n}.get(stage[:2], 0)},
                "closed_form": {"requested_bytes": 20 * n * n}}

    return {**WHERE, "rows": [row(stage, d, n) for stage in RUNGS for d, n in ((64, 256), (64, 1024), (128, 1024))]
                             + [row("02-tiled", 64, 1024, shared) for shared in (64 * 1024, 128 * 1024)]}


def occupancy():
    rows = [("09-wgmma", 4, 100), ("09-wgmma", 8, 200), ("09-wgmma/more keys", 8, 190), ("09-wgmma", 16, 150),
            ("12-x", 12, 500), ("14-x", 16, 700), ("10-x", 16, 300)]
    return {**WHERE, "rows": [{"stage": stage, "warps": warps, "tflops": speed * d / 64, "shape": shape(d, 4096)}
                              for stage, warps, speed in rows for d in (64, 128)]}


@unittest.skipUnless(plots, "pictures are not tested without matplotlib")
class FromResults(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for patch in (unittest.mock.patch.object(results, "RESULTS", self.folder),
                      unittest.mock.patch.object(measured, "RUNGS", RUNGS)):
            patch.start()
            self.addCleanup(patch.stop)
        for name, content in {"ladder": ladder(), "compare": compare(), "counts": counts(),
                              "occupancy": occupancy()}.items():
            self.write(name, content)

    def write(self, name, content):
        (self.folder / f"{name}.json").write_text(json.dumps(content))

    def axes(self, draw):
        figure = draw()
        self.addCleanup(plots.plt.close, figure)
        figure.draw_without_rendering()
        return figure.axes

    def points(self, axes):
        return {(float(x), float(y)) for line in axes.lines for x, y in line.get_xydata()}

    def words(self, axes):
        return [text.get_text() for text in axes.texts]

    def rows(self, axes):
        return [label.get_text() for label in axes.get_yticklabels()]

    def test_tflops_by_rung(self):
        both = self.axes(measured.tflops_by_rung)
        self.assertEqual(self.rows(both[0]), ["00 plain", "01 flash", "02 tiled", "04 mma", "09 wgmma"])
        for axes, d in zip(both, (64, 128)):
            self.assertEqual(self.points(axes), {(speed * d / 64, y) for y, speed in enumerate(SPEEDS.values())})
            self.assertEqual((axes.get_xscale(), axes.get_xlabel()), ("log", f"TFLOP/s, d = {d}"))
            for number in {64: ("0.0625", "1.50", "20.0", "70.0", "400"), 128: ("0.125", "3.00", "800")}[d]:
                self.assertIn(number, self.words(axes))

    def test_tflops_by_n_names_each_line_and_has_no_rung_of_floats(self):
        all_axes = self.axes(measured.tflops_by_n)
        self.assertEqual(len(all_axes), 4)
        panels = ("d = 64, not causal", "d = 64, causal", "d = 128, not causal", "d = 128, causal")
        for axes, of in zip(all_axes, panels):
            self.assertEqual(self.words(axes)[:7], [of, "04", "cuDNN", "FA2", "09", "FA3", "FA4"])  # names by height
            self.assertEqual(self.points(axes), {(n, speed + n / 100) for speed in (70, 400, 300, 399, 401, 402)
                                                 for n in (1024, 4096)})
        self.assertIn("PyTorch 9.8.7, cuDNN 6.5.4; A card, commit c0ffee, 2030-01-02", self.words(all_axes[2]))

    def test_names_that_would_overlap_are_moved_apart_and_keep_their_order(self):
        axes = self.axes(measured.tflops_by_n)[0]
        heights = {text.get_text(): text.get_window_extent() for text in axes.texts}
        for lower, upper in (("04", "cuDNN"), ("cuDNN", "FA2"), ("FA2", "09"), ("09", "FA3"), ("FA3", "FA4")):
            self.assertLessEqual(heights[lower].y1, heights[upper].y0 + 3, (lower, upper))

    def test_error_by_rung_of_the_whole_and_of_the_worst_row_with_the_peers(self):
        both = self.axes(measured.error_by_rung)
        self.assertEqual(self.rows(both[0])[-5:], ["09 wgmma", "cuDNN", "FA2", "FA3", "FA4"])
        for axes in both:
            self.assertLessEqual({(1e-6, 0), (1e-5, 0), (1e-6, 4), (2e-3, 5), (3e-3, 5), (2e-3, 6), (3e-3, 6)},
                                 self.points(axes))

    def test_bytes_by_rung(self):
        for axes, d in zip(self.axes(measured.bytes_by_rung), (64, 128)):
            once = 4 * 1024 * d * 4  # Q, K, V and O of floats
            self.assertEqual({x for x, y in self.points(axes) if y == 0}, {20 * 1024 ** 2, 16 * 1024 * d})
            self.assertLessEqual({(once, -0.5), (once, 2.5), (once / 2, 2.5), (once / 2, 4.5)}, self.points(axes))

    def test_bytes_by_n_and_m(self):
        by_n, by_m = self.axes(measured.bytes_by_n_and_m)
        self.assertLessEqual({(n, 20 * n * n) for n in (256, 1024)}, self.points(by_n))
        self.assertEqual({x for x, y in self.points(by_m)}, {64 * 1024, 128 * 1024})
        self.assertLessEqual({"00", "01", "02", "Algorithm 0", "Algorithm 1"}, set(self.words(by_n)))

    def test_the_algorithms_of_the_paper(self):
        self.assertEqual(measured.standard_bytes(2, 3), 4 * (4 * 6 + 4 * 4))
        N, d, M = 1024, 64, 16 * 1024  # M in floats
        self.assertEqual(measured.flash_bytes(N, d, 4 * M), 4 * (2 * N * d + 12 * (N * d) ** 2 / M))
        self.assertEqual(measured.flash_bytes(16, d, 4 * M), 4 * 5 * 16 * d)  # one block of keys

    def test_rungs_that_need_the_same_memory_are_one_line(self):
        axes, = self.axes(measured.memory)
        self.assertLessEqual({"00", "01, 02", "04, 09"}, set(self.words(axes)))
        self.assertLessEqual({(256, 4 * 256 ** 2), (1024, 8 * 1024), (1024, 0)}, self.points(axes))

    def test_frontier(self):
        self.assertEqual(measured.frontier([(3, 5), (1, 2), (2, 1), (1, 1), (3, 6), (4, 6)]), [(1, 2), (3, 6)])

    def test_occupancy_the_best_with_as_few_warps_and_the_others(self):
        for axes, d in zip(self.axes(measured.occupancy), (64, 128)):
            self.assertEqual(self.words(axes)[:4], ["09", "09", "12", "14"])
            full = {(line.get_xdata()[0], line.get_ydata()[0] * 64 / d) for line in axes.lines
                    if line.get_fillstyle() == "full" and len(line.get_xdata()) == 1}
            self.assertEqual(full, {(4, 100), (8, 200), (12, 500), (16, 700)})
            self.assertLessEqual({(8, 190 * d / 64), (16, 150 * d / 64), (16, 300 * d / 64)}, self.points(axes))

    def test_occupancy_without_one_of_the_kinds(self):
        file = occupancy()
        file["rows"] = [row for row in file["rows"] if row["stage"] != "09-wgmma" and "/" not in row["stage"]]
        self.write("occupancy", file)
        self.assert_says(measured.occupancy, "occupancy.json", "head_dim 64", "one thing after the other")

    def test_each_says_where_its_numbers_are_from(self):
        for name, draw in plots.DRAWN.items():
            if draw.__module__ == measured.__name__:
                words = [word for axes in self.axes(draw) for word in self.words(axes)]
                self.assertIn("A card, commit c0ffee, 2030-01-02", " ".join(words), name)

    def test_a_picture_is_the_same_each_time_and_its_words_are_text(self):
        for look in plots.THEMES.values():
            with plots.plt.rc_context(look):
                first = plots.svg(measured.tflops_by_rung())
                self.assertEqual(plots.svg(measured.tflops_by_rung()), first)
            for word in ("01 flash", "TFLOP/s, d = 128", "0.0625"):
                self.assertIn(f">{word}</text>", first)

    def test_a_colour_is_a_kind_and_a_marker_is_a_rung(self):
        self.assertEqual([measured.style(f"{n:02}-x")["color"] for n in (0, 3, 4, 7, 8, 14, 15)],
                         ["C0", "C0", "C1", "C1", "C2", "C2", "C2"])
        looks = [(look["color"], look["marker"]) for look in map(measured.style, results.RUNGS + list(measured.PEERS))]
        self.assertEqual(len(set(looks)), len(looks))

    def assert_says(self, draw, *words):
        with self.assertRaises(SystemExit) as caught:
            draw()
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_a_missing_or_broken_file_is_named(self):
        (self.folder / "ladder.json").write_text("{")
        self.assert_says(measured.tflops_by_rung, "ladder.json", "line 1")
        (self.folder / "ladder.json").unlink()
        self.assert_says(measured.tflops_by_rung, "ladder.json", "No such file")

    def test_a_missing_row_is_named(self):
        file = ladder()
        file["rows"].pop()
        self.write("ladder", file)
        self.assert_says(measured.tflops_by_rung, "ladder.json", "stage 09-wgmma", "n_q 4096", "head_dim 128")
        file = compare()
        file["rows"] = [row for row in file["rows"] if row["stage"] != "peer:torch-cudnn"]
        self.write("compare", file)
        self.assert_says(measured.tflops_by_n, "compare.json", "peer:torch-cudnn")
        file = counts()
        file["rows"] = file["rows"][:-2]
        self.write("counts", file)
        self.assert_says(measured.bytes_by_n_and_m, "counts.json", "02-tiled", "shared_bytes")

    def test_a_row_that_is_there_twice_is_named(self):
        file = ladder()
        file["rows"].append(file["rows"][0])
        self.write("ladder", file)
        self.assert_says(measured.tflops_by_rung, "ladder.json", "2 rows", "00-plain")

    def test_a_missing_value_is_named(self):
        file = compare()
        del file["rows"][0]["tflops"]
        self.write("compare", file)
        self.assert_says(measured.tflops_by_n, "compare.json", '"tflops"', "04-mma")
        file = counts()
        del file["gpu"]
        self.write("counts", file)
        self.assert_says(measured.memory, "counts.json", '"gpu"')


@unittest.skipUnless(plots, "pictures are not tested without matplotlib")
class FromOtherFiles(unittest.TestCase):
    """What the tools say that `./ladder timeline` and `./ladder profile` call, of files that are none of theirs."""
    def test_one_sentence_names_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            file, picture = pathlib.Path(folder, "file.json"), pathlib.Path(folder, "picture.svg")
            for text, says in (("{}", "it has no 'otherData'|it has no 'rows'"), ("[]", "is no file that"),
                               ('{"rows": [], "otherData": {}}', "is no file that"), ("{", "it is no JSON"),
                               (None, "cannot be read: No such file or directory")):
                file.unlink(missing_ok=True)
                if text is not None:
                    file.write_text(text)
                for tool in ("draw_timeline.py", "roofline.py"):
                    done = subprocess.run([sys.executable, "-B", ROOT / "tools/pictures" / tool, file, picture],
                                          capture_output=True, text=True)
                    self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1), done.stderr)
                    self.assertRegex(done.stderr, f"^{file} .*({says})")
                    self.assertFalse(picture.exists())


class WithoutMatplotlib(unittest.TestCase):
    def run_with(self, module, *arguments):
        code = (f"import runpy, sys, types; sys.modules['matplotlib'] = {module}; sys.argv[0] = {str(PLOTS)!r}; "
                f"runpy.run_path({str(PLOTS)!r}, run_name='__main__')")
        return subprocess.run([sys.executable, "-B", "-c", code, *arguments], capture_output=True, text=True)

    def test_one_line_says_what_is_missing(self):
        for module, here in (("None", "here is none"), ("types.SimpleNamespace(__version__='3.9.2')", "here is 3.9.2")):
            for arguments in ((), ("--check",)):
                done = self.run_with(module, *arguments)
                self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (77, "", 1), done.stderr)
                self.assertIn("need matplotlib 3.10, " + here, done.stderr)


class Documents(unittest.TestCase):
    """Every picture is shown, and as one for a light and one for a dark page."""
    def test_pictures_that_are_shown_are_those_that_are_there(self):
        shown = set()
        for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("chapters/*/README.md")]:
            if document.name == "CONTRIBUTING.md":  # has an example
                continue
            text = document.read_text()
            blocks = re.findall(r'<picture>\n'
                                r'  <source media="\(prefers-color-scheme: dark\)" srcset="(.+)-dark\.svg">\n'
                                r'  <img src="(.+)\.svg" alt=".+">\n</picture>\n', text)
            self.assertEqual(2 * len(blocks), len(re.findall(r"pictures/[\w-]+\.svg", text)), document)
            for dark, light in blocks:
                self.assertEqual(dark, light, document)
                path = (document.parent / light).resolve()
                self.assertEqual(path.parent, PICTURES, document)
                shown |= {f"{path.name}.svg", f"{path.name}-dark.svg"}
        self.assertEqual(shown, {path.name for path in PICTURES.glob("*")})

    @unittest.skipUnless(plots, "pictures are not tested without matplotlib")
    def test_they_are_those_that_are_drawn(self):
        self.assertEqual({f"{name}{suffix}.svg" for name in plots.DRAWN for suffix in plots.THEMES},
                         {path.name for path in PICTURES.glob("*")})


if __name__ == "__main__":
    unittest.main()
