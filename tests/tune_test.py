#!/usr/bin/env python3
"""What tools/tune.py does without a GPU: it reads the configurations, chooses, and writes choices.h."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import compare_torch
import tune

RESULTS = sorted((ROOT / "docs/results").glob("tune*.json"))
KNOWN = tune.configurations()
A, B = (name for name, c in list(KNOWN.items())[:2])


def result_of(times):
    """A result file of {(d, causal): {n: {configuration: ms}}}."""
    rows = [{"configuration": name, "ms": ms, "shape": {"head_dim": d, "causal": causal, "n_k": n}}
            for (d, causal), by_n in times.items() for n, by_name in by_n.items() for name, ms in by_name.items()]
    return {"gpu": "a card", "commit": "0123", "rows": rows}


class Configurations(unittest.TestCase):
    SOURCE = """
    Configuration{.d = 64, .consumers = 4, .B_c = 64, .stages = 4, .turns = false},
    // a comment
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 1, .shown = true, .schedule = lcsf::Schedule::fixed},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 4, .schedule = lcsf::Schedule::one_each},
"""

    def test_they_are_read_by_name(self):
        self.assertEqual(list(tune.configurations(self.SOURCE).values()), [
            tune.Configuration(0, 64, "4 x 64 keys, 4 slots, dynamic", False),
            tune.Configuration(1, 128, "3 x 64 keys, 1 slot, fixed, turns", True),
            tune.Configuration(2, 128, "3 x 64 keys, 4 slots, one block each, turns", False)])

    def test_none_is_overlooked(self):
        rows = tune.CONFIGURATIONS.read_text().count("    Configuration{")
        self.assertEqual([c.number for c in KNOWN.values()], list(range(rows)))

    def test_those_of_the_library_must_be_the_same(self):
        class Library:
            stages = lambda self: [{"stage": "14-lcsf", "variants": self.variants}]
        library = Library()
        library.variants = [{"variant": c.name, "head_dims": [c.d]} for c in KNOWN.values()]
        by_d = tune.candidates_of(library, KNOWN)
        self.assertEqual(sorted(by_d), [64, 128, 256])
        self.assertEqual({name for names in by_d.values() for name in names},
                         {c.name for c in KNOWN.values() if not c.shown})
        library.variants.pop()
        with self.assertRaisesRegex(SystemExit, "build it"):
            tune.candidates_of(library, KNOWN)


class Choices(unittest.TestCase):
    def test_the_best_of_each_length_and_equal_ones_are_one_row(self):
        self.assertEqual(tune.choose({512: {"a": 1, "b": 2}, 1024: {"a": 1, "b": 2}, 2048: {"a": 2, "b": 1}}),
                         [[1448, "a"], [2048, "b"]])  # 1448 / 1024 is nearly 2048 / 1448

    def test_lengths_are_taken_in_ascending_order(self):
        self.assertEqual(tune.choose({2048: {"a": 2, "b": 1}, 512: {"a": 1, "b": 2}}), [[1024, "a"], [2048, "b"]])

    def test_a_hundredth_is_not_worth_another_one(self):
        times = lambda b: {512: {"a": 100, "b": 200}, 1024: {"a": 101, "b": b}}
        self.assertEqual(tune.choose(times(100)), [[1024, "a"]])
        self.assertEqual(tune.choose(times(99.9)), [[724, "a"], [1024, "b"]])

    def test_small_losses_do_not_add_up(self):
        times = {512: {"a": 1.000, "b": 2}, 1024: {"a": 1.009, "b": 1}, 2048: {"a": 1.018, "b": 1}}
        self.assertEqual(tune.choose(times), [[1448, "a"], [2048, "b"]])

    def test_rows_by_d_and_mask_the_last_for_any_length(self):
        result = result_of({(128, True): {512: {"x": 1}}, (64, False): {512: {"a": 1, "b": 2}, 1024: {"a": 2, "b": 1}},
                            (64, True): {512: {"b": 1}}})
        self.assertEqual(tune.choices([result]), [(64, False, 724, "a"), (64, False, None, "b"), (64, True, None, "b"),
                                                (128, True, None, "x")])

    def test_several_cards_count_alike_however_fast_they_are(self):
        slow = result_of({(64, True): {512: {"a": 100, "b": 110}}})
        self.assertEqual(tune.choices([slow, result_of({(64, True): {512: {"a": 1.2, "b": 1}}})]), [(64, True, None, "b")])
        self.assertEqual(tune.choices([slow, result_of({(64, True): {512: {"a": 1.05, "b": 1}}})]), [(64, True, None, "a")])

    def test_all_cards_must_have_timed_the_same(self):
        other = result_of({(64, True): {512: {"b": 1}}})
        with self.assertRaisesRegex(SystemExit, "of a, d 64, causal, N 512 there are 1 times from 2 cards"):
            tune.choices([result_of({(64, True): {512: {"a": 1, "b": 1}}}), other])


class Header(unittest.TestCase):
    def test_rows_and_where_they_are_from(self):
        header = tune.choices_header([result_of({(64, True): {512: {A: 1, B: 2}, 1024: {A: 2, B: 1}}})], KNOWN)
        self.assertIn("// a card, commit 0123.\n", header)
        self.assertIn(f"    {{.d = 64, .causal = true, .n_k = 724, .configuration = {KNOWN[A].number}}},  // {A}\n"
                      f"    {{.d = 64, .causal = true, .n_k = INT_MAX, .configuration = {KNOWN[B].number}}},  // {B}\n"
                      "};\n", header)

    def test_times_of_unknown_configurations_are_refused(self):
        for d, name in ((64, "5 x 64 keys"), (128, A)):
            with self.assertRaisesRegex(SystemExit, "time them again"):
                tune.choices_header([result_of({(d, True): {512: {name: 1}}})], KNOWN)

    def test_from_a_result_file_without_a_GPU(self):
        result = result_of({(64, True): {512: {A: 1, B: 2}}})
        with tempfile.TemporaryDirectory() as folder:
            source, target = pathlib.Path(folder, "tune.json"), pathlib.Path(folder, "choices.h")
            source.write_text(json.dumps(result))
            command = [sys.executable, "-B", ROOT / "tools/tune.py", "--from", source]
            printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            subprocess.run([*command, "--write", target], check=True)
            self.assertEqual(target.read_text(), printed)
            self.assertEqual(printed, tune.choices_header([result], KNOWN))

    def test_the_header_of_the_project_has_a_row_for_every_shape(self):
        rows = re.findall(r"\.d = (\d+), \.causal = (\w+), \.n_k = (\w+), \.configuration = (\d+)\}",
                          tune.CHOICES.read_text())
        by_number = {c.number: c for c in KNOWN.values()}
        for d, _, _, number in rows:
            self.assertEqual(by_number[int(number)].d, int(d))
        last = [(int(d), causal) for d, causal, n, _ in rows if n == "INT_MAX"]
        self.assertEqual(last, [(d, causal) for d in (64, 128, 256) for causal in ("false", "true")])

    def test_the_header_of_the_project_is_that_of_its_result_files(self):
        results = [json.loads(file.read_text()) for file in RESULTS]
        self.assertEqual(tune.CHOICES.read_text(), tune.choices_header(results, KNOWN))

    def test_the_result_files_have_all_candidates_on_all_shapes(self):
        for file in RESULTS:
            timed = {(row["configuration"], compare_torch.Shape(**row["shape"])) for row in
                     json.loads(file.read_text())["rows"]}
            self.assertEqual(timed, {(c.name, of) for of in tune.SHAPES for c in KNOWN.values()
                                     if c.d == of.head_dim and not c.shown}, file)


if __name__ == "__main__":
    unittest.main()
