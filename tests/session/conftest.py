import pytest

SHORT = """\
network: lenet
data: {source: digits, batch_size: 64}
optimizer: {name: sgd, lr: 0.05, momentum: 0.9}
train: {epochs: 10}
strategy: {workers: 2}
"""


@pytest.fixture
def short():
    return SHORT


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes session.yaml into a folder that is the working directory, so that messages name it as a user would."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        path = tmp_path / "session.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return "session.yaml"

    return write
