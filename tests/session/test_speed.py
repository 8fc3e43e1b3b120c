import os
import subprocess
import sys
from time import perf_counter

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


def python(code, folder):
    started = perf_counter()
    # bytecode beside the test: an installed package has it, a checkout in a read-only container may not
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return perf_counter() - started, done.stdout.strip()


def test_a_faulty_file_is_refused_in_60_ms_beyond_python_and_ruamel(write, tmp_path):
    write(BAD)
    base, ours = [], []
    for _ in range(12):
        base.append(python("import ruamel.yaml", tmp_path)[0])
        ours.append(python(READ, tmp_path)[0])
    assert min(ours) - min(base) < 0.060


def test_nothing_heavy_is_imported_to_read_a_session(write, tmp_path, short):
    write(BAD)
    assert python(READ + HEAVY, tmp_path)[1] == "[]"
    write(short)
    assert python(WHOLE + HEAVY, tmp_path)[1] == "[]"
