import os
import subprocess
import sys

import pytest

BAD = "network: lenet\ndata: {source: digits}\noptimizer: {name: sgd, lrr: 1}\ntrain: {epochs: ten}\n"
READ = """
from volary.session import Session, SessionError
try:
    Session.read('session.yaml', ['strategy.workers=0'])
except SessionError as error:
    assert len(error.problems) == 3, error
else:
    raise SystemExit('a faulty file was read')
"""
WHOLE = """
from volary.session import Session
session = Session.read('session.yaml')
session.to_yaml()
session.check()
"""
HEAVY = "import sys; print([n for n in ('torch', 'numpy', 'rich', 'PIL', 'click') if n in sys.modules])"
CLOCK = "import time; print(time.process_time())"


def python(code, folder):
    # bytecode beside the test: an installed package has it, a test run may forbid writing it into the checkout
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True, timeout=300
    ).stdout.strip()


@pytest.mark.slow  # starts Python many times; the next says what is not imported
def test_a_faulty_file_is_refused_in_little_more_time_than_python_and_ruamel_take_to_begin(write, tmp_path):
    """Processor time since the process began, the best of several, against what the same processor takes for that."""
    write(BAD)
    base, ours = [], []
    for _ in range(8):
        base.append(float(python("import ruamel.yaml\n" + CLOCK, tmp_path)))
        ours.append(float(python(READ + CLOCK, tmp_path)))
    assert min(ours) < 5 * min(base)


def test_nothing_heavy_is_imported_to_read_a_session(write, tmp_path, short):
    write(BAD)
    assert python(READ + HEAVY, tmp_path) == "[]"
    write(short)
    assert python(WHOLE + HEAVY, tmp_path) == "[]"
