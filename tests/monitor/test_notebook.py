"""A session that is trained in a notebook, by a real kernel."""

import base64

import pytest

CODE = """
import volary
volary.Session(
    network="softmax",
    data={"source": {"name": "synthetic", "shape": [6], "classes": 3, "samples": 60, "kind": "blobs"}},
    train={"steps": 12},
    evaluate={"every": "6 steps"},
).train()
"""


@pytest.mark.slow  # a kernel, and in it a run
def test_the_cell_that_trains_shows_the_curves_and_how_it_ended():
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    shown = []

    def take(message):
        kind, content = message["header"]["msg_type"], message["content"]
        assert kind != "error", content["traceback"]
        if kind in ("display_data", "update_display_data"):
            shown.append((content["transient"]["display_id"], content["data"]))

    try:
        reply = client.execute_interactive(CODE, timeout=150, output_hook=take)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert reply["content"]["status"] == "ok"
    assert len({place for place, _ in shown}) == 1, "one output, which is redrawn in its place"
    last = shown[-1][1]
    assert "finished  at step 12" in last["text/plain"]
    _, _, image = last["text/html"].partition("base64,")
    assert base64.b64decode(image.partition('"')[0]).startswith(b"\x89PNG")
