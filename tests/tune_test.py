#!/usr/bin/env python3
"""What tools/measure/tune.py does without a GPU: it reads the configurations, fits costs, and writes costs.h."""
import dataclasses
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools/measure"))
import problems
import tune

RESULTS = sorted((ROOT / "docs/results").glob("tune*.json"))
KNOWN = tune.configurations()
A, B = (name for name, c in list(KNOWN.items())[:2])


def of_shape(d, causal, heads, n, n_k=None):
    return problems.Shape(1, heads, heads, n, n_k or n, d, causal)


def result_of(times, multiprocessors=132):
    """A result file of {shape: {configuration: microseconds}}."""
    rows = [{"configuration": name, "ms": us / 1000, "shape": dataclasses.asdict(of)}
            for of, by_name in times.items() for name, us in by_name.items()]
    return {"gpu": "a card", "commit": "0123", "multiprocessors": multiprocessors, "fills_last_round": True, "rows": rows}


class Configurations(unittest.TestCase):
    SOURCE = """
    Configuration{.d = 64, .consumers = 4, .B_c = 64, .stages = 4, .turns = false},
    // a comment
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 1, .shown = true, .schedule = lcsf::Schedule::fixed},
    Configuration{.d = 128, .consumers = 3, .B_c = 64, .stages = 4, .schedule = lcsf::Schedule::one_each},
"""

    def test_they_are_read_by_name(self):
        self.assertEqual(list(tune.configurations(self.SOURCE).values()), [
            tune.Configuration(0, 64, "4 x 64 keys, 4 slots, dynamic", False, 4, 64),
            tune.Configuration(1, 128, "3 x 64 keys, 1 slot, fixed, turns", True, 3, 64, True),
            tune.Configuration(2, 128, "3 x 64 keys, 4 slots, one block each, turns", False, 3, 64)])

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


WIDE = next(c for c in KNOWN.values() if c.d == 64 and c.consumers == 4 and not c.shown)
EACH = next(c for name, c in KNOWN.items() if c.d == 64 and c.consumers == 4 and "one block each" in name)
NARROW = next(c for c in KNOWN.values() if c.d == 64 and c.consumers == 1)
SHAPES = [of_shape(64, causal, heads, n) for causal in (False, True) for heads in (1, 3, 10, 50, 200)
          for n in (500, 1000, 4000)]


def times_of(costs, shapes=SHAPES):
    """{shape: {configuration: microseconds}} exactly as the costs have it."""
    return {of: {name: tune.expected_time(KNOWN[name], cost, of, 132) for name, cost in costs.items()} for of in shapes}


class Times(unittest.TestCase):
    """The same numbers as tests/configurations.cpp has for the same function in C++."""
    C = next(c for c in KNOWN.values() if c.consumers == 3 and c.B_c == 64)
    COST = tune.Cost(1000, 100, 1)

    def expected(self, causal, heads, n_q, n_k, multiprocessors):
        return tune.expected_time(self.C, self.COST, of_shape(128, causal, heads, n_q, n_k), multiprocessors)

    def test_not_causal_so_many_tasks_as_the_busiest_multiprocessor_has(self):
        self.assertEqual(self.expected(False, 1, 192, 64, 4), 1101)
        self.assertEqual(self.expected(False, 5, 192, 65, 4), 1204)
        self.assertEqual(self.expected(False, 1, 193, 640, 1), 1220)

    def test_not_causal_a_last_round_that_is_not_full_has_tasks_of_one_unit_less(self):
        self.assertAlmostEqual(self.expected(False, 6, 1920, 64, 59), 1000 + 1.52 * 101)
        fixed = dataclasses.replace(self.C, fixed=True)
        self.assertEqual(tune.tasks_and_rounds(fixed, of_shape(128, False, 6, 1920, 64), 59), (10, 2))
        self.assertEqual(tune.tasks_and_rounds(self.C, of_shape(128, False, 32, 2048), 132), (12, 2.76))

    def test_causal_the_longest_task_or_an_equal_share(self):
        self.assertEqual(self.expected(True, 1, 1920, 1920, 132), 1130)
        self.assertAlmostEqual(self.expected(True, 8, 1920, 1920, 4), 1000 + 20 * 116.5)
        self.assertAlmostEqual(self.expected(True, 8, 1920, 2560, 4), 1000 + 20 * 126.5)
        self.assertAlmostEqual(self.expected(True, 8, 1920, 960, 4), 1000 + 20 * 105)


class Costs(unittest.TestCase):
    TRUE = {WIDE.name: tune.Cost(3, 2, 0.9), NARROW.name: tune.Cost(0.5, 2.5, 0.75)}

    def assertSame(self, found, wanted):
        for field in dataclasses.fields(tune.Cost):
            self.assertAlmostEqual(getattr(found, field.name), getattr(wanted, field.name), 6)

    def test_times_that_follow_the_model_give_its_costs(self):
        for causal in (False, True):
            times = {of: us for of, us in times_of(self.TRUE).items() if of.causal == causal}
            for name, cost in self.TRUE.items():
                self.assertSame(tune.fitted(KNOWN[name], times, 132), cost)

    def test_none_is_negative(self):
        times = {of: {WIDE.name: us[WIDE.name] - 3.5} for of, us in times_of(self.TRUE).items() if not of.causal}
        cost = tune.fitted(WIDE, times, 132)
        self.assertEqual(cost.launch, 0)
        self.assertTrue(1 < cost.task < 2 and 0.8 < cost.step < 1, cost)

    def test_what_shapes_do_not_tell_apart_is_0(self):
        cost = tune.fitted(WIDE, {of_shape(64, False, 1, 256): {WIDE.name: 12}}, 132)
        self.assertSame(cost, tune.Cost(12, 0, 0))

    def test_what_all_times_of_a_problem_have_in_common_is_in_no_cost(self):
        true = {WIDE.name: tune.Cost(3, 1, 0.9), EACH.name: tune.Cost(0, 3.5, 0.9)}
        pace = lambda of: 1.2 if of.heads * of.n_q > 50000 else 0.9  # large ones have a lower clock
        times = {of: {name: pace(of) * t for name, t in us.items()} for of, us in times_of(true).items() if not of.causal}
        loss_of = lambda costs: tune.loss(costs, times, KNOWN, 132)
        self.assertLess(loss_of(tune.fitted_together(times, KNOWN, 132)), 1.0001)
        self.assertGreater(loss_of({name: tune.fitted(KNOWN[name], times, 132) for name in true}), 1.001)

    def test_both_are_kept_where_each_is_the_faster_one_somewhere(self):
        costs = tune.all_costs([result_of(times_of(self.TRUE))], KNOWN)
        self.assertEqual({kind: set(found) for kind, found in costs.items()},
                         {(64, False): {WIDE.name, NARROW.name}, (64, True): {WIDE.name, NARROW.name}})

    def test_one_that_is_never_the_faster_one_is_left_out(self):
        slow = {**self.TRUE, NARROW.name: tune.Cost(9, 9, 9)}
        costs = tune.all_costs([result_of(times_of(slow))], KNOWN)
        self.assertEqual([list(found) for found in costs.values()], [[WIDE.name]] * 2)

    def test_several_cards_count_alike_however_fast_they_are(self):
        fast = result_of(times_of({name: tune.Cost(c.launch / 4, c.task / 4, c.step / 4) for name, c in self.TRUE.items()}))
        for found in tune.all_costs([result_of(times_of(self.TRUE)), fast], KNOWN).values():
            for name, cost in found.items():
                self.assertSame(cost, tune.Cost(*(x / 2 for x in dataclasses.astuple(self.TRUE[name]))))

    def test_all_cards_must_have_timed_the_same_and_be_of_one_size(self):
        times = times_of(self.TRUE)
        fewer = dict(list(times.items())[1:])
        with self.assertRaisesRegex(SystemExit, "there are 1 times from 2 cards"):
            tune.all_costs([result_of(times), result_of(fewer)], KNOWN)
        with self.assertRaisesRegex(SystemExit, "have .114, 132. multiprocessors"):
            tune.all_costs([result_of(times), result_of(times, 114)], KNOWN)

    def test_loss_is_that_of_the_choice(self):
        times = {of: {WIDE.name: 10, NARROW.name: 20} for of in SHAPES[:3]}
        self.assertEqual(tune.loss({NARROW.name: tune.Cost(1, 1, 1)}, times, KNOWN, 132), 2)
        self.assertEqual(tune.loss({WIDE.name: tune.Cost(1, 1, 1)}, times, KNOWN, 132), 1)


class Header(unittest.TestCase):
    RESULT = result_of(times_of(Costs.TRUE))

    def test_rows_and_where_they_are_from(self):
        header = tune.costs_header([self.RESULT], KNOWN)
        self.assertIn("// a card, commit 0123.\n", header)
        self.assertIn(f"    {{.configuration = {WIDE.number}, .causal = false, .launch = 3.000, .task = 2.000, "
                      f".step = 0.9000}},  // d 64: {WIDE.name}\n", header)

    def test_times_of_unknown_configurations_are_refused(self):
        for d, name in ((64, "5 x 64 keys"), (128, WIDE.name)):
            with self.assertRaisesRegex(SystemExit, "time them again"):
                tune.costs_header([result_of({of_shape(d, True, 1, 512): {name: 1}})], KNOWN)

    def test_from_a_result_file_without_a_GPU(self):
        with tempfile.TemporaryDirectory() as folder:
            source, target = pathlib.Path(folder, "tune.json"), pathlib.Path(folder, "costs.h")
            source.write_text(json.dumps(self.RESULT))
            command = [sys.executable, "-B", ROOT / "tools/measure/tune.py", "--from", source]
            printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            subprocess.run([*command, "--write", target], check=True)
            self.assertEqual(target.read_text(), printed)
            self.assertEqual(printed, tune.costs_header([self.RESULT], KNOWN))

    def test_the_header_of_the_project_is_that_of_its_result_files(self):
        results = [json.loads(file.read_text()) for file in RESULTS]
        self.assertEqual(tune.COSTS.read_text(), tune.costs_header(results, KNOWN))

    def test_the_result_files_have_all_candidates_on_all_shapes(self):
        for file in RESULTS:
            timed = {(row["configuration"], problems.Shape(**row["shape"])) for row in
                     json.loads(file.read_text())["rows"]}
            self.assertEqual(timed, {(c.name, of) for of in tune.SHAPES for c in KNOWN.values()
                                     if c.d == of.head_dim and not c.shown}, file)


if __name__ == "__main__":
    unittest.main()
