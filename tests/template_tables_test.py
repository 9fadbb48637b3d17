#!/usr/bin/env python3
"""What tools/measure/template_tables.py does without a GPU: which kernels it compares, how it counts lines, bytes."""
import pathlib
import re
import struct
import sys
import types
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools/measure"))
import template_tables as tables
import tune


class Kernels(unittest.TestCase):
    def test_the_configurations_are_there(self):
        known = tune.configurations()
        for problems, variants in tables.ATTENTION_TABLES.values():
            for variant in variants.values():
                self.assertEqual({of.head_dim for of in problems}, {known[variant].d}, variant)

    def test_the_variants_of_the_matrix_product_are_there(self):
        source = (ROOT / "solutions/14b-gemm/gemm.cu").read_text()
        known = set(re.findall(r'^    \{\{folder, "([^"]*)", launch<Gemm<', source, re.MULTILINE))
        asked = {variant for _, variants in tables.GEMM_TABLES.values() for variant in variants.values()}
        self.assertEqual(asked - known, {tables.CUBLAS})
        self.assertEqual(known - asked, set())

    def test_sizes_are_multiples_of_8(self):
        for problems, _ in tables.GEMM_TABLES.values():
            for of in problems:
                self.assertEqual([of.m % 8, of.n % 8, of.k % 8], [0, 0, 0])
        self.assertEqual(tables.Sizes(2, 3, 5).flops(), 60)

    def test_the_interface_is_that_of_the_header(self):
        class Tensor:
            def __init__(self, address):
                self.data_ptr = lambda: address

        class Function:
            def __call__(self, *arguments):
                self.seen = arguments
        function = Function()
        library = types.SimpleNamespace(library=types.SimpleNamespace(flashladder_gemm=function))
        stream = types.SimpleNamespace(cuda_stream=7)
        fake = types.SimpleNamespace(cuda=types.SimpleNamespace(current_stream=lambda: stream))
        with unittest.mock.patch.dict(sys.modules, {"torch": fake}):
            run = tables.gemm_run(library, "2 slots", tables.Sizes(8, 16, 24), Tensor(4))
            run(Tensor(1), Tensor(2), Tensor(3))
            self.assertEqual(function.seen, (b"2 slots", 8, 16, 24, 1, 2, 3, 4, 7))
            header = (ROOT / "common/interface/flashladder.h").read_text()
            parameters = re.search(r"flashladder_gemm\((.*?)\)", header, re.DOTALL)[1].split(",")
            kinds = {"int": tables.ctypes.c_int, "const char*": tables.ctypes.c_char_p}
            self.assertEqual(function.argtypes, [kinds.get(parameter.strip().rpartition(" ")[0], tables.ctypes.c_void_p)
                                                 for parameter in parameters])
            function.__class__.__call__ = lambda *_: b"no"
            with self.assertRaisesRegex(RuntimeError, "no"):
                run(Tensor(1), Tensor(2), Tensor(3))


class Counting(unittest.TestCase):
    def test_lines(self):
        self.assertEqual(tables.lines_of_code(""), 0)
        self.assertEqual(tables.lines_of_code("// a\n\nint a;  // b\n/* c\n\nd */\n  \nint b; /* e\n*/ int c;\n"), 3)
        self.assertEqual(tables.lines_of_code('f("//", "/*");\nint a;\ng("*/");\n'), 3)

    def test_every_counted_file_is_there(self):
        for file in tables.COUNTED:
            self.assertGreater(tables.lines_of_code((ROOT / file).read_text()), 5, file)
        self.assertEqual({file for file in tables.COUNTED if "/lcsf/" in file},
                         {f"common/lcsf/{path.name}" for path in (ROOT / "common/lcsf").iterdir()})

    def test_the_kernel_that_is_shown(self):
        name = "void flashladder::(anonymous namespace)::lcsf::a<flashladder::C<3, (flashladder::lcsf::S)1> >(int)"
        self.assertEqual(tables.plain_name(name), "a<C<3, (S)1> >(int)")
        kernels = [{"kernel": "a<1>(int)", "bytes": 5}, {"kernel": "a<2>(int)", "bytes": 6}]
        self.assertEqual(tables.bytes_of(kernels, "a<2>"), 6)
        for begin in ("b", "a"):
            with self.assertRaisesRegex(SystemExit, "kernels are called"):
                tables.bytes_of(kernels, begin)

    def test_machine_code(self):
        names, sections = b"\0.text._Z1av\0.text.b\0.data\0.strtab\0", [b"", b"1234", b"12", b"123456", b""]
        elf, table = bytearray(64), []
        for name, section in zip((b"", b".text._Z1av", b".text.b", b".data", b".strtab"), sections):
            data = names if name == b".strtab" else section
            table.append(struct.pack("<IIQQQQIIQQ", names.index(name), 1, 0, 0, len(elf), len(data), 0, 0, 1, 0))
            elf += data
        struct.pack_into("<5s", elf, 0, b"\x7fELF\x02")
        struct.pack_into("<Q", elf, 0x28, len(elf))
        struct.pack_into("<HHH", elf, 0x3A, 64, len(table), len(table) - 1)
        self.assertEqual(tables.code_sections(bytes(elf) + b"".join(table)), {"_Z1av": 4, "b": 2})
        with self.assertRaises(ValueError):
            tables.code_sections(b"#!/bin/sh")


if __name__ == "__main__":
    unittest.main()
