# SPDX-License-Identifier: Apache-2.0
"""The gate on compiled kernels fails where it must: argument 1 is tests_gpu_gate_launches."""
import copy
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

GATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "bench", "gpu")
sys.path.insert(0, GATE)
import compiled
import disassembly
import gate
import model

PROGRAM = sys.argv.pop(1)
NVDISASM = disassembly.find_nvdisasm()


def run(part, table):
    """(status, what gate.py prints) with this table."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(table, file)
        file.flush()
        command = [sys.executable, "-B", os.path.join(GATE, "gate.py"), part, PROGRAM, "--table", file.name]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout


class OfThisBuild(unittest.TestCase):
    """With a table of the program as it is, so that it says nothing of whether that is good."""

    @classmethod
    def setUpClass(cls):
        found = gate.Found(PROGRAM, False)
        kernels = {name: kernel.limits() for name, kernel in found.kernels.items()}
        operations = {operation["operation"]: [gate.launch_limits(*each) for each in launches]
                      for operation, launches in found.operations}
        cls.table = {"architecture": found.architecture, "toolkit": found.toolkit, "operations": operations,
                     "excused": {name: "" for name, kernel in found.kernels.items() if kernel.stack},
                     "kernels": kernels}
        cls.kernel = next(name for name in kernels if "forward<bf16, 64>" in name)

    def changed(self, change):
        table = copy.deepcopy(self.table)
        change(table)
        return table

    def expect(self, part, change, text):
        status, shown = run(part, self.changed(change))
        self.assertEqual(status, 1, shown)
        self.assertIn(text, shown)

    def test_the_same_passes(self):
        self.assertEqual(run("registers", self.table)[0], 0)

    def test_more_registers_fail(self):
        def change(table):
            table["kernels"][self.kernel]["registers"] -= 1
        self.expect("registers", change, f"{self.kernel}: {self.table['kernels'][self.kernel]['registers']} registers")

    def test_a_stack_needs_an_excuse(self):
        excused = next(iter(self.table["excused"]), None)
        if excused is None:
            self.skipTest("no kernel has a stack")
        self.expect("registers", lambda table: table["excused"].pop(excused), f"{excused}: a stack of ")

    def test_unlisted_kernels_fail_and_so_do_those_that_are_gone(self):
        self.expect("registers", lambda table: table["kernels"].pop(self.kernel), "that is not in the table")
        self.expect("registers", lambda table: table["kernels"].update({"gone": {}}), "gone: a kernel of the table")

    def test_fewer_blocks_on_a_multiprocessor_fail(self):
        def change(table):
            table["operations"]["attention bf16, head size 64"][0]["blocks_an_sm"] += 1
        self.expect("registers", change, "blocks of ")

    def test_another_kernel_for_an_operation_fails(self):
        def change(table):
            table["operations"]["swiglu"][0]["kernel"] = "another"
        self.expect("registers", change, "swiglu: launches elements: for_elements<8, SwiGlu<bf16> >")

    def test_another_toolkit_is_not_compared(self):
        status, shown = run("registers", self.changed(lambda table: table.update(toolkit="12.0")))
        self.assertEqual(status, 0)
        self.assertIn("skipped: the table is of", shown)

    @unittest.skipUnless(NVDISASM, "no nvdisasm")
    def test_loops_fail_where_they_are_worse(self):
        found = gate.Found(PROGRAM, True)
        table = gate.updated(found, self.table)
        self.assertEqual(list(gate.check_loops(found, table)), [])
        for part, less in (("branches", 1), ("ldmatrix_per_mma", 0.01), ("loads", 1), ("instructions", 200)):
            worse = copy.deepcopy(table)
            worse["kernels"][self.kernel]["loop"][part] -= less
            self.assertIn(f" {part}, the table has", "".join(gate.check_loops(found, worse)))


LISTING = """
        .section        .text.kernel,"ax",@progbits
        /*0000*/                   MOV R1, R2 ;
.L_x_0:
        /*0010*/                   LDSM.16.M88.4 R4, [R1] ;
        /*0020*/               @P0 BRA `(.L_x_3) ;
.L_x_1:
        /*0030*/                   HMMA.16816.F32.BF16 R4, R4, R6, R4 ;
        /*0040*/                   HMMA.16816.F32.BF16 R4, R4, R6, R4 ;
        /*0050*/               @P1 BRA `(.L_x_0) ;
.L_x_2:
        /*0060*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0070*/               @P2 BRA `(.L_x_2) ;
        /*0080*/                   EXIT ;
.L_x_3:
        /*0090*/                   STL [R1], R4 ;
        /*00a0*/                   BRA `(.L_x_1) ;
.L_x_4:
        /*00b0*/                   BRA `(.L_x_4);
"""


class OfText(unittest.TestCase):
    def test_the_main_loop_has_what_stands_behind_the_code_too(self):
        loop = disassembly.Loop(disassembly.functions(LISTING)["kernel"])
        self.assertEqual(loop.limits(), {"spill_accesses": 1, "instructions": 7, "branches": 3, "mma": 2,
                                         "ldmatrix_per_mma": 0.5, "loads": 0})
        waits = disassembly.Loop(disassembly.functions(LISTING.replace("LDSM.16.M88.4", "LDG.E.128"))["kernel"])
        self.assertEqual(waits.limits()["loads"], 1)

    def test_without_products_it_is_the_one_that_loads(self):
        text = "\n".join(line for line in LISTING.split("\n") if "HMMA" not in line)
        self.assertEqual(len(disassembly.Loop(disassembly.functions(text)["kernel"]).instructions), 2)

    def test_names_are_those_of_the_source(self):
        mangled = "_ZN4fsdp6device4cuda44_GLOBAL__N__132e3486_7_norm_cu_47630359_283910fold_partsEv"
        self.assertEqual(compiled.readable(mangled, "void fsdp::device::cuda::(anonymous namespace)::f<fsdp::bf16, 8>"
                                                    "(void (*)(int), fsdp::f16)"), "norm: f<bf16, 8>")

    def test_compressed_code_is_not_passed_over(self):
        entry = struct.pack("<HHIQ", 2, 257, 64, 8) + bytes(48) + b"\x28\xb5\x2f\xfd" + bytes(4)
        with tempfile.NamedTemporaryFile() as file:
            file.write(compiled.FAT_BINARY + struct.pack("<HHQ", 1, 16, len(entry)) + entry)
            file.flush()
            with self.assertRaises(ValueError):
                list(compiled.cubins(file.name))

    def test_blocks_are_limited_by_registers_shared_memory_and_threads(self):
        def blocks(registers, static, threads, dynamic, bound=0):
            kernel = compiled.Kernel("", "", registers, 0, static, bound)
            return model.blocks_an_sm(kernel, {"threads": threads, "dynamic_shared": dynamic})
        self.assertEqual(blocks(32, 0, 256, 0), 8)
        self.assertEqual(blocks(168, 0, 128, 0), 3)
        self.assertEqual(blocks(32, 1024, 128, 54 * 1024), 4)
        self.assertEqual(blocks(66, 0, 1024, 0), 0)
        self.assertEqual(blocks(32, 0, 256, 0, bound=128), 0)


    def test_passes_count_their_products_on_tiles_as_wide_as_they_are(self):
        def products(name, columns):
            return model.products_of(compiled.Kernel(name, "", 0, 0, 0, 0), columns)
        self.assertEqual(products("attention_forward: forward<bf16, 64>", 64), 2)
        self.assertEqual(products("attention_forward: forward<bf16, 96>", 80), 2.4)
        self.assertEqual(products("attention_backward_keys: backward_keys<f16, 256, false, true>", 256), 2)
        self.assertEqual(products("attention_plain: multiply_out<f16, 4>", 64), 0)


if __name__ == "__main__":
    try:
        gate.Found(PROGRAM, False)
    except gate.Skipped as why:
        print(f"skipped: {why}")
        sys.exit(0)
    unittest.main()
