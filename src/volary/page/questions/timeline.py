"""One recorded step as lanes: what each worker did when, in milliseconds since the first of them began."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from volary.monitor.trace import TRACKS, journeys
from volary.run.database.reader import RunReader

MOST = 20_000  # spans; of more, the longest


def timeline(reader: RunReader, step: int | None) -> dict[str, Any]:
    """The spans of `step` (default: the newest that was recorded whole), and the medians of each bucket over all."""
    recorded = reader.recorded_steps()
    if not recorded:
        return {"steps": [], "step": None, "spans": [], "left_out": 0, "journeys": []}
    # the newest may still be coming: its gradients are applied during the next
    step = step if step in recorded else recorded[-2] if len(recorded) > 1 else recorded[-1]
    spans = list(reader.spans(step, step))
    shown = sorted(spans, key=lambda span: span.start_s - span.end_s)[:MOST]
    origin = min((span.start_s for span in spans), default=0.0)
    return {
        "steps": recorded,
        "step": step,
        "left_out": len(spans) - len(shown),
        "spans": [
            [
                span.rank,
                TRACKS.get(span.kind, span.kind),
                span.kind,
                span.name,
                round(1e3 * (span.start_s - origin), 4),
                round(1e3 * (span.end_s - origin), 4),
                span.size_bytes,
            ]
            for span in sorted(shown, key=lambda span: (span.rank, span.start_s))
        ],
        "journeys": [asdict(one) for one in journeys(spans)],
    }
