# SPDX-License-Identifier: Apache-2.0
"""What tests/pytest.ini gives every test in Python: the program under test, in a folder with a text."""
import os
import pathlib
import shutil
import tempfile

import pytest

from support.files import text
from support.program import Program


def pytest_addoption(parser):
    parser.addoption("--program", help="the program under test")


@pytest.fixture(scope="module")
def folder(request):
    """A folder in which the module's tests run one after another; it is removed at the end. It has text.txt alone, of
    TEXT_BYTES bytes if the module sets them, otherwise 3000."""
    before = os.getcwd()
    made = tempfile.mkdtemp(prefix="run.", dir=before)
    os.mkdir(os.path.join(made, "cwd"))
    os.chdir(os.path.join(made, "cwd"))
    text(getattr(request.module, "TEXT_BYTES", 3000), "text.txt")
    yield pathlib.Path.cwd()
    os.chdir(before)
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def program(request, folder):
    """The program under test, in that folder."""
    path = request.config.getoption("--program")
    if not path:
        pytest.fail("these tests need --program PATH", pytrace=False)
    return Program((request.config.invocation_params.dir / path).resolve(strict=True))
