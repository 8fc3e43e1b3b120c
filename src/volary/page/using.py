"""Uses of a finished run: predictions of dropped files, its worst samples, and its model as a file."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.background import BackgroundTask
from starlette.datastructures import QueryParams
from starlette.responses import FileResponse, Response

from volary.errors import BadInput
from volary.page.commands import answer
from volary.page.making.uploads import SUFFIXES
from volary.run.directory import RunDirectory

WORST = 24
TOP = 5  # classes of a prediction
ROWS = 200  # predictions that are shown, of a table
PREDICTED_BYTES = 64 * 2**20  # of a file that is to be predicted
FORMS = {"safetensors": "weights", "onnx": "network", "pt2": "network"}


def predicted(directory: RunDirectory, words: QueryParams, body: bytes) -> Any:
    """The run's predictions for the file `name`, whose content is the body: rows, as `volary predict` writes them.

    Raises BadInput with what that says if it cannot.
    """
    suffix = Path(words.get("name", "")).suffix.lower()
    if suffix not in SUFFIXES:
        raise BadInput(f"a file {suffix or 'without an ending'}: accepted: {', '.join(SUFFIXES)}")
    with tempfile.TemporaryDirectory(prefix="volary-page-") as folder:
        given, output = Path(folder, f"dropped{suffix}"), Path(folder, "answers.jsonl")
        given.write_bytes(body)
        counts = answer(["predict", str(directory.path), str(given), "-o", str(output), "--json"])
        with output.open(encoding="utf-8") as lines:
            rows = [_shortened(json.loads(line)) for _, line in zip(range(ROWS), lines, strict=False)]
    return {"rows": rows, "count": counts["rows"], "unreadable": counts["unreadable"]}


def _shortened(row: dict[str, Any]) -> dict[str, Any]:
    """A row with its most probable classes alone: they come first, and there may be fewer than `TOP`."""
    found = row.get("probabilities")
    return row | {"probabilities": dict(list(found.items())[:TOP])} if isinstance(found, dict) else row


def worst(directory: RunDirectory, _: QueryParams, __: bytes) -> Any:
    """The samples of the validation data that the run is worst at."""
    return answer(["evaluate", str(directory.path), "--worst", str(WORST), "--json"])


def exported(directory: RunDirectory, words: QueryParams, _: bytes) -> Response:
    """The run's model as a file: of the form `form`, one of `FORMS`. Raises BadInput if it cannot be."""
    if (form := words.get("form", "")) not in FORMS:
        raise BadInput(f"form is {form[:20]!r}; accepted: {', '.join(FORMS)}")
    folder = tempfile.TemporaryDirectory(prefix="volary-page-")
    try:
        file = Path(folder.name, f"{directory.name}.{form}")
        answer(["export", str(directory.path), "-o", str(file), "--json"])
        return FileResponse(file, filename=file.name, background=BackgroundTask(folder.cleanup))
    except BaseException:
        folder.cleanup()
        raise


USES: dict[str, tuple[Callable[[RunDirectory, QueryParams, bytes], Any], int]] = {
    "predict": (predicted, PREDICTED_BYTES),
    "worst": (worst, 1024),
    "export": (exported, 1024),
}
"""By name: what answers, and how many bytes it takes. None changes the run. Each raises BadInput, or RunError."""
